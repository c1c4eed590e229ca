// The whole trace on a strip: how busy it is, where errors are, and the part that is seen; drag to see another.
import { html, useLayoutEffect, useMemo, useRef, useState } from "../h.js";
import { useSize } from "../use.js";
import { useShownTheme } from "../theme.js";
import { count, millis } from "../parts/format.js";
import { VirtualTable } from "../parts/table.js";
import { palette, prepare, spanColour } from "./colours.js";
import { byName } from "./model.js";

const HEIGHT = 34;

export function Overview({ trace, view, onView }) {
  const [box, { width }] = useSize();
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const theme = useShownTheme();
  const drag = useRef(/** @type {number | null} */ (null));

  const density = useMemo(() => densityOf(trace, width), [trace, width]);
  useLayoutEffect(() => {
    if (width) draw(prepare(canvas.current, width, HEIGHT), trace, density, view, width);
  }, [trace, view, density, theme]);

  const moment = (event) => {
    const place = event.currentTarget.getBoundingClientRect();
    return Math.min(Math.max((event.clientX - place.left) / place.width, 0), 1) * trace.total;
  };
  const down = (event) => {
    drag.current = moment(event);
    event.currentTarget.setPointerCapture(event.pointerId);
  };
  const move = (event) => {
    if (drag.current === null) return;
    const at = moment(event),
      low = Math.min(at, drag.current),
      high = Math.max(at, drag.current);
    if (high - low > trace.total / 300) onView({ from: low, to: high });
  };
  const up = (event) => {
    if (drag.current !== null && Math.abs(moment(event) - drag.current) < trace.total / 300) centre(moment(event));
    drag.current = null;
  };
  const centre = (at) => {
    const half = (view.to - view.from) / 2,
      middle = Math.min(Math.max(at, half), trace.total - half);
    onView({ from: middle - half, to: middle + half });
  };
  return html`<div class="trace-overview" ref=${box} style=${{ height: HEIGHT + "px" }}>
    <canvas ref=${canvas} aria-hidden="true" onPointerDown=${down} onPointerMove=${move} onPointerUp=${up}
      onDblClick=${() => onView({ from: 0, to: trace.total })} title="Drag to zoom, double-click for all"></canvas>
      </div>`;
}

// How many spans are at work at each pixel, and where one failed.
function densityOf(trace, width) {
  const bins = Math.max(1, Math.floor(width)),
    busy = new Float32Array(bins + 1),
    bad = new Uint8Array(bins + 1);
  const scale = bins / trace.total;
  for (let i = 0; i < trace.n; i++) {
    const low = Math.max(0, Math.floor(trace.start[i] * scale)),
      high = Math.min(bins - 1, Math.floor(trace.end[i] * scale));
    busy[low] += 1;
    busy[Math.max(high, low) + 1] -= 1;
    if (trace.status[i] === 2) bad.fill(1, low, high + 1);
  }
  let level = 0,
    most = 1;
  for (let at = 0; at < bins; at++) {
    level += busy[at];
    busy[at] = level;
    most = Math.max(most, level);
  }
  return { bins, busy, bad, most };
}

function draw(pen, trace, { bins, busy, bad, most }, view, width) {
  const of = palette(),
    scale = bins / trace.total,
    floor = HEIGHT - 5;
  pen.fillStyle = of.ghost;
  for (let at = 0; at < bins; at++) {
    if (busy[at] <= 0) continue;
    const tall = Math.max(1, Math.sqrt(busy[at] / most) * (floor - 4));
    pen.fillRect(at, floor - tall, 1, tall);
  }
  pen.fillStyle = of.bad;
  for (let at = 0; at < bins; at++) if (bad[at]) pen.fillRect(at, floor + 1, 1, 3);
  const low = view.from * scale,
    high = view.to * scale;
  pen.fillStyle = of.panel;
  pen.globalAlpha = 0.66;
  pen.fillRect(0, 0, low, HEIGHT);
  pen.fillRect(high, 0, width - high, HEIGHT);
  pen.globalAlpha = 1;
  pen.strokeStyle = of.accent;
  pen.lineWidth = 1.5;
  pen.strokeRect(low + 0.75, 0.75, Math.max(high - low - 1.5, 1), HEIGHT - 1.5);
}

// Totals by span name: count, duration, self time, and time on the critical path.
export function NameTable({ trace, onSelect }) {
  const [sort, setSort] = useState("-critical");
  const all = useMemo(() => byName(trace), [trace]);
  const rows = useMemo(() => {
    const key = sort.replace("-", ""),
      sign = sort.startsWith("-") ? -1 : 1;
    return [...all].sort((a, b) => sign * (key === "name" ? a.name.localeCompare(b.name) : a[key] - b[key]));
  }, [all, sort]);
  const critical = all.reduce((sum, row) => sum + row.critical, 0) || 1;
  const columns = [
    {
      id: "name",
      title: "Name",
      width: "minmax(200px, 1.6fr)",
      sortable: "name",
      cell: (row) =>
        html`<span class="trace-dot" style=${{ background: spanColour(row.name) }}></span>
          <span title=${row.name}>${row.name}</span>`,
    },
    {
      id: "critical",
      title: "Critical path",
      width: "minmax(170px, 1fr)",
      sortable: "critical",
      cell: (row) =>
        html`<span class="trace-meter" aria-hidden="true">
          <span style=${{ width: (row.critical / critical) * 100 + "%", background: "var(--accent)" }}></span></span>
          <span class="trace-lasts">${millis(row.critical)}</span>`,
    },
    {
      id: "self",
      title: "Self time",
      width: "100px",
      align: "right",
      sortable: "self",
      cell: (row) => millis(row.self),
    },
    {
      id: "total",
      title: "Total",
      width: "100px",
      align: "right",
      sortable: "total",
      cell: (row) => millis(row.total),
    },
    { id: "count", title: "Spans", width: "84px", align: "right", sortable: "count", cell: (row) => count(row.count) },
    {
      id: "longest",
      title: "Longest",
      width: "100px",
      align: "right",
      sortable: "longest",
      cell: (row) => millis(row.longest),
    },
    {
      id: "errors",
      title: "Failed",
      width: "70px",
      align: "right",
      sortable: "errors",
      cell: (row) =>
        row.errors ? html`<span class="bad-text">✕ ${count(row.errors)}</span>` : html`<span class="muted">–</span>`,
    },
  ];
  return html`<${VirtualTable} label="Names in this trace" columns=${columns} rows=${rows}
      keyOf=${(row) => row.name} rowHeight=${28} sort=${sort} onSort=${setSort}
    onOpen=${(row) => onSelect(row.slowest)} />`;
}
