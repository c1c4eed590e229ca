// The flame view: a lane for each rank or thread, rows by depth, on one canvas that draws what is in sight.
// Spans narrower than a pixel are drawn together, so a hundred thousand cost what a thousand do.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../h.js";
import { useSize } from "../use.js";
import { useShownTheme } from "../theme.js";
import { millis } from "../parts/format.js";
import { fitted, palette, prepare } from "./colours.js";
import { laneTitle, moved, ticks, zoomed } from "./model.js";
import { escapeInvisible } from "../parts/invisible.js";

const ROW = 19,
  HEAD = 21,
  RULER = 22,
  NARROW = 1.5;

/** @typedef {{ x: number, y: number, view: { from: number, to: number }, top: number, far: boolean }} Drag */

export function Flame({ trace, view, onView, selected, onSelect, critical }) {
  const [box, size] = useSize();
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null)),
    scroller = useRef(/** @type {HTMLElement | null} */ (null));
  const [top, setTop] = useState(0);
  const [tip, setTip] = useState(/** @type {{ i: number, x: number, y: number } | null} */ (null));
  const theme = useShownTheme();
  const stack = useMemo(() => stacked(trace), [trace]);
  const drag = useRef(/** @type {Drag | null} */ (null));
  const { width, height } = size;

  useLayoutEffect(() => {
    if (!width || !height) return;
    const pen = prepare(canvas.current, width, height);
    draw(pen, { trace, view, top, width, height, stack, selected, critical, hovered: tip?.i ?? -1 });
  }, [trace, view, top, width, height, theme, selected, critical, tip?.i]);

  useEffect(() => {
    if (selected < 0 || !scroller.current) return;
    const at = yOf(trace, stack, selected),
      body = scroller.current;
    if (at < body.scrollTop || at + ROW > body.scrollTop + height - RULER)
      body.scrollTop = Math.max(0, at - (height - RULER) / 2);
  }, [selected]);

  const timeAt = (event) => {
    const place = event.currentTarget.getBoundingClientRect();
    return view.from + ((event.clientX - place.left) / place.width) * (view.to - view.from);
  };
  // A wheel must be stopped from scrolling the page, which needs a listener that is not passive.
  useEffect(() => {
    const body = scroller.current;
    if (!body) return undefined;
    const wheel = (event) => {
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        onView((old) =>
          moved(old, ((event.deltaX || event.deltaY) / body.clientWidth) * (old.to - old.from), trace.total),
        );
      } else if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        const place = (canvas.current ?? body).getBoundingClientRect(),
          share = (event.clientX - place.left) / place.width;
        onView((old) => zoomed(old, Math.exp(event.deltaY / 240), old.from + share * (old.to - old.from), trace.total));
      }
    };
    body.addEventListener("wheel", wheel, { passive: false });
    return () => body.removeEventListener("wheel", wheel);
  }, [trace]);

  const found = (event) => {
    const place = event.currentTarget.getBoundingClientRect();
    return spanAt(trace, stack, timeAt(event), event.clientY - place.top - RULER + top, (view.to - view.from) / width);
  };
  const down = (event) => {
    drag.current = { x: event.clientX, y: event.clientY, view, top, far: false };
  };
  const move = (event) => {
    const from = drag.current;
    if (from && event.buttons) {
      if (Math.abs(event.clientX - from.x) + Math.abs(event.clientY - from.y) > 4 && !from.far) {
        from.far = true;
        event.currentTarget.setPointerCapture(event.pointerId);
      }
      if (from.far) {
        onView(moved(from.view, ((from.x - event.clientX) / width) * (from.view.to - from.view.from), trace.total));
        if (scroller.current) scroller.current.scrollTop = from.top + from.y - event.clientY;
        setTip(null);
      }
      return;
    }
    const i = found(event),
      place = box.current.getBoundingClientRect();
    setTip(i < 0 ? null : { i, x: event.clientX - place.left, y: event.clientY - place.top });
  };
  const up = (event) => {
    if (!drag.current?.far) {
      const i = found(event);
      onSelect(i);
    }
    drag.current = null;
  };
  const keys = (event) => {
    const next = neighbour(trace, selected, event.key);
    if (next >= 0) onSelect(next);
    else if (event.key === "+" || event.key === "=")
      onView((old) => zoomed(old, 0.6, (old.from + old.to) / 2, trace.total));
    else if (event.key === "-") onView((old) => zoomed(old, 1.7, (old.from + old.to) / 2, trace.total));
    else if (event.key === "0") onView({ from: 0, to: trace.total });
    else return;
    event.preventDefault();
  };

  return html`<div class="trace-flame" ref=${box}>
    <div class="trace-scroll" ref=${scroller} tabindex="0" role="application" onKeyDown=${keys}
        onScroll=${(event) => setTop(event.currentTarget.scrollTop)}
        aria-label=${`Flame view of ${trace.n} spans. Arrow keys walk through the spans, plus and minus zoom, 0 shows all.`}>
      <canvas ref=${canvas} onPointerDown=${down} onPointerMove=${move} onPointerUp=${up}
          onPointerLeave=${() => setTip(null)}></canvas>
      <div style=${{ height: Math.max(stack.height + RULER - height, 0) + "px" }}></div>
    </div>
    ${tip && html`<${Tip} trace=${trace} tip=${tip} width=${width} />`}
  </div>`;
}

function Tip({ trace, tip, width }) {
  const { i } = tip,
    left = tip.x > width - 260;
  return html`<div class="trace-tip"
      style=${{
        left: left ? undefined : tip.x + 12 + "px",
        right: left ? width - tip.x + 12 + "px" : undefined,
        top: tip.y + 14 + "px",
      }}>
    <b>${trace.names[trace.name[i]]}</b>
    <span>${trace.open[i] ? "still open" : millis(trace.end[i] - trace.start[i])} · self ${millis(trace.self[i])}
      ${trace.status[i] === 2 ? " · failed" : ""}</span>
    </div>`;
}

// Where each lane begins, from the top.
function stacked(trace) {
  const tops = [];
  let at = 0;
  for (const rows of trace.rows.lanes) {
    tops.push(at);
    at += HEAD + rows.length * ROW + 8;
  }
  return { tops, height: at };
}

const yOf = (trace, stack, i) => stack.tops[trace.lane[i]] + HEAD + trace.rows.row[i] * ROW;

// The span under a point; one narrower than a pixel is found when it is near.
function spanAt(trace, stack, time, y, pixel) {
  let lane = stack.tops.length - 1;
  while (lane > 0 && stack.tops[lane] > y) lane--;
  const spans = trace.rows.lanes[lane]?.[Math.floor((y - stack.tops[lane] - HEAD) / ROW)];
  if (!spans || y < stack.tops[lane] + HEAD) return -1;
  const at = firstAfter(trace, spans, time + pixel) - 1;
  for (let k = at; k >= Math.max(0, at - 3); k--) if (trace.end[spans[k]] >= time - pixel * 2) return spans[k];
  return -1;
}

// The first place in a row whose span begins after a moment.
function firstAfter(trace, spans, time) {
  let low = 0,
    high = spans.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (trace.start[spans[middle]] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Where an arrow key leads: up to the parent, down to the first child, sideways in the row.
function neighbour(trace, i, key) {
  if (!["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"].includes(key)) return -1;
  if (i < 0) return trace.order[0] ?? -1;
  if (key === "ArrowUp") return trace.parent[i];
  if (key === "ArrowDown")
    return trace.tree.first[i + 1] < trace.tree.first[i + 2] ? trace.tree.list[trace.tree.first[i + 1]] : -1;
  const row = trace.rows.lanes[trace.lane[i]][trace.rows.row[i]],
    at = row.indexOf(i) + (key === "ArrowRight" ? 1 : -1);
  return row[at] ?? -1;
}

function draw(pen, scene) {
  const { trace, view, top, width, height, stack } = scene;
  const of = palette();
  scene.of = of;
  scene.scale = width / (view.to - view.from);
  pen.font = "11px Inter, sans-serif";
  pen.textBaseline = "middle";
  ruler(pen, scene);
  pen.save();
  pen.beginPath();
  pen.rect(0, RULER, width, height - RULER);
  pen.clip();
  trace.rows.lanes.forEach((rows, lane) => {
    const y = RULER + stack.tops[lane] - top;
    if (y > height || y + HEAD + rows.length * ROW < RULER) return;
    rows.forEach((spans, k) => {
      const place = y + HEAD + k * ROW;
      if (place < height && place + ROW > RULER) row(pen, scene, spans, place);
    });
    laneHead(pen, scene, lane, y);
  });
  pen.restore();
}

function ruler(pen, { view, width, height, of, scale }) {
  pen.fillStyle = of.muted;
  pen.strokeStyle = of.grid;
  pen.lineWidth = 1;
  pen.beginPath();
  for (const tick of ticks(view, width)) {
    const x = Math.round((tick.at - view.from) * scale) + 0.5;
    pen.moveTo(x, RULER - 6);
    pen.lineTo(x, height);
    pen.fillText(tick.text, x + 4, RULER / 2 - 1);
  }
  pen.stroke();
  pen.strokeStyle = of.line;
  pen.beginPath();
  pen.moveTo(0, RULER - 0.5);
  pen.lineTo(width, RULER - 0.5);
  pen.stroke();
}

function laneHead(pen, { trace, width, of }, lane, y) {
  pen.fillStyle = of["ink-2"];
  pen.font = "560 11px Inter, sans-serif";
  pen.fillText(laneTitle(trace.lanes[lane], trace.lanes), 8, y + HEAD / 2 + 1);
  pen.font = "11px Inter, sans-serif";
  if (lane) {
    pen.strokeStyle = of.line;
    pen.beginPath();
    pen.moveTo(0, y - 3.5);
    pen.lineTo(width, y - 3.5);
    pen.stroke();
  }
}

function row(pen, scene, spans, y) {
  const { trace, view, scale, selected, critical } = scene;
  const last = firstAfter(trace, spans, view.to);
  /** @type {{ i: number, low: number, high: number, faded: boolean } | null} */
  let run = null;
  const flush = () => {
    if (run) bar(pen, scene, run.i, run.low, Math.max(run.high, run.low + 0.75), y, run.faded);
    run = null;
  };
  for (let k = Math.max(0, firstAfter(trace, spans, view.from) - 1); k < last; k++) {
    const i = spans[k];
    if (trace.end[i] < view.from) continue;
    const low = Math.max((trace.start[i] - view.from) * scale, -2),
      high = Math.min((trace.end[i] - view.from) * scale, scene.width + 2);
    const faded = critical && trace.critical[i] <= 0,
      plain = trace.status[i] !== 2 && i !== selected;
    if (plain && high - low < NARROW) {
      if (run && low - run.high < 1 && run.faded === faded) {
        run.high = Math.max(run.high, high);
        continue;
      }
      flush();
      run = { i, low, high, faded };
      continue;
    }
    flush();
    bar(pen, scene, i, low, Math.max(high, low + 0.75), y, faded);
    if (i === selected) outline(pen, scene.of, low, high - low, y);
  }
  flush();
}

// One span, or a run of narrow ones in the colour of the first.
function bar(pen, scene, i, low, high, y, faded) {
  const { trace, of, hovered } = scene,
    failed = trace.status[i] === 2,
    wide = high - low;
  pen.globalAlpha = faded ? 0.16 : i === hovered ? 1 : 0.82;
  pen.fillStyle = failed ? of.bad : of.series[trace.hues[trace.name[i]]];
  pen.fillRect(low, y + 1, wide > 3 ? wide - 0.75 : wide, ROW - 2);
  pen.globalAlpha = 1;
  if (wide > 26 && (trace.end[i] - trace.start[i]) * scene.scale > 26)
    label(pen, scene, i, Math.max(low, 0), Math.min(high, scene.width), y, faded);
}

function label(pen, { trace, of }, i, low, high, y, faded) {
  const text = fitted(
    (trace.status[i] === 2 ? "✕ " : "") + escapeInvisible(trace.names[trace.name[i]]),
    high - low - 8,
  );
  if (!text) return;
  pen.fillStyle = faded ? of["ink-2"] : of.panel;
  pen.fillText(text, low + 5, y + ROW / 2 + 0.5);
}

function outline(pen, of, low, wide, y) {
  pen.strokeStyle = of.ink;
  pen.lineWidth = 2;
  pen.strokeRect(low, y + 1, Math.max(wide - 0.75, 3), ROW - 2);
  pen.lineWidth = 1;
}
