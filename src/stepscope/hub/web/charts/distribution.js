// The distributions of a metric along a run, as a card beside the charts: a column for each step, darker where values are denser.
import { html, useEffect, useRef, useState } from "../h.js";
import { get, runPath } from "../api.js";
import { useShownTheme } from "../theme.js";
import { useFetch, useSize } from "../use.js";
import { IconButton } from "../parts/controls.js";
import { count, counted, number, real } from "../parts/format.js";
import { formatX } from "./scales.js";

const POINTS = 100; // columns
const LEFT = 54,
  RIGHT = 12,
  TOP = 8,
  BOTTOM = 22,
  EVERY = 5000;

// A row of the API as bins: edges (one more than counts), counts, and the x it stands at.
function binsOf(row) {
  const bounds = row.bounds.map(real),
    counts = row.counts;
  if (!counts.length || !row.count) return null;
  const inner = bounds.filter(Number.isFinite);
  const low = row.min === null ? inner[0] : real(row.min),
    high = row.max === null ? inner.at(-1) : real(row.max);
  const edges = [low, ...bounds, high];
  if (edges.length !== counts.length + 1 || ![low, high].every(Number.isFinite)) return null;
  const mean = row.sum === null ? null : real(row.sum) / row.count;
  return { x: row.x, step: row.step, count: row.count, edges, counts, low, high, mean };
}

// The value below which a share of the values lies, as far as the bins tell.
function quantileOf({ edges, counts, count }, share) {
  let left = share * count;
  for (let i = 0; i < counts.length; i++) {
    if (counts[i] >= left && counts[i] > 0) return edges[i] + ((edges[i + 1] - edges[i]) * left) / counts[i];
    left -= counts[i];
  }
  return edges.at(-1);
}

export function DistributionCard({
  id,
  title,
  metric,
  view,
  run,
  going,
  onStep,
  pinned,
  onPin,
  wide,
  onWide,
  place,
  grip,
}) {
  const x = metric.first_step === null || view.x === "time" || view.x === "relative" ? "time" : "step";
  const shift = view.x === "relative" ? run.started : 0;
  const [from, to] = (x === view.x || shift ? view.window : null) || [null, null];
  const rank = /^\d+$/.test(view.ranks) ? view.ranks : null;
  const fetched = useFetch(
    (signal) =>
      get(
        runPath(id, "histograms"),
        { key: metric.key, x, points: POINTS, rank, from: from && from + shift, to: to && to + shift },
        signal,
      ),
    [id, metric.key, x, rank, from, to, shift],
  );
  useEffect(() => {
    const timer = going ? setInterval(() => !document.hidden && !fetched.loading && fetched.reload(), EVERY) : 0;
    return () => clearInterval(timer);
  }, [going, fetched.loading]);
  const series = fetched.value?.series[0],
    columns = (series?.rows || []).map(binsOf).filter(Boolean);
  const others = (fetched.value?.series.length || 1) - 1;
  const [at, setAt] = useState(/** @type {number | null} */ (null));
  const marked = at === null ? null : columns[Math.min(at, columns.length - 1)];
  const say = (column) =>
    `${formatX(shift ? "relative" : x, column.x - shift)}  median ${number(quantileOf(column, 0.5), 3)}  ` +
    (column.mean === null ? "" : `mean ${number(column.mean, 3)}  `) +
    `[${number(column.low, 3)} … ${number(column.high, 3)}]  ${count(column.count)} values`;
  const keys = (event) => {
    const last = columns.length - 1,
      now = at ?? last + 1;
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last }[event.key];
    if (next !== undefined) setAt(Math.max(0, Math.min(last, next)));
    else if (event.key === "Enter" && marked && marked.step !== null) onStep(marked.step);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<section class=${"chart panel distribution" + (wide ? " wide" : "") + (marked ? " attended" : "")}
      data-key=${metric.key} data-place=${place} aria-label=${title}>
    <header class="chart-head"><h3 title=${metric.key}>${title}</h3>
      <output class="chart-readout mono">${marked ? say(marked) : ""}</output><span class="chart-last"></span>
      <span class="chart-tools">
        ${grip}
        <${IconButton} icon="pin" label=${pinned ? `Unpin ${title}` : `Pin ${title}`} on=${pinned} onClick=${onPin} />
        <${IconButton} icon="wide" label=${wide ? `Make ${title} small` : `Make ${title} wide`} on=${wide}
            onClick=${onWide} /></span></header>
    <div class="chart-plot" tabindex="0" role="application" aria-roledescription="chart" onKeyDown=${keys}
        aria-label=${`${title}, distributions: arrow keys move the cursor, Enter opens the step`}
        onPointerLeave=${() => setAt(null)}>
      <${Heat} columns=${columns} marked=${marked} shift=${shift} kind=${shift ? "relative" : x} onPlace=${setAt}
          onPick=${(column) => column.step !== null && onStep(column.step)} />
      ${fetched.error && html`<p class="chart-note bad-text" role="alert">${fetched.error.message}</p>`}
      ${fetched.value && !columns.length && html`<p class="chart-note">No distributions in this range</p>`}
    </div>
    <footer class="chart-foot"><span class="chart-count">
      ${series ? `${counted(series.total, "distribution")}, ${count(columns.length)} shown` : ""}
      ${others > 0 ? `, rank ${series.rank} of ${others + 1} series` : ""}</span></footer>
  </section>`;
}

function Heat({ columns, marked, shift, kind, onPlace, onPick }) {
  const [box, { width, height }] = useSize();
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const theme = useShownTheme();
  const place = placeOf(columns, width, height);
  useEffect(() => {
    if (canvas.current && width && height) paint(canvas.current, columns, place, { marked, width, height });
    if (box.current) box.current.dataset.drawn = String(columns.length);
  });
  const find = (event) => {
    const { left } = box.current.getBoundingClientRect();
    return place.nearest(event.clientX - left);
  };
  return html`<div class="heat" ref=${box} data-theme-drawn=${theme}
      onPointerMove=${(event) => columns.length && onPlace(find(event))}
      onClick=${(event) => columns.length && onPick(columns[find(event)])}>
    <canvas ref=${canvas} aria-hidden="true"></canvas>
    ${
      columns.length > 0 &&
      html`<span class="heat-y high">${number(place.high, 3)}</span><span class="heat-y low">${number(place.low, 3)}</span>
        <span class="heat-x low">${formatX(kind, columns[0].x - shift)}</span>
        ${columns.length > 1 && html`<span class="heat-x high">${formatX(kind, columns.at(-1).x - shift)}</span>`}`
    }
  </div>`;
}

// Where columns and values lie on the canvas.
function placeOf(columns, width, height) {
  const low = Math.min(...columns.map((each) => each.low)),
    high = Math.max(...columns.map((each) => each.high)),
    span = high - low || 1;
  const first = columns[0]?.x ?? 0,
    last = columns.at(-1)?.x ?? 1;
  const inside = width - LEFT - RIGHT,
    step = columns.length > 1 ? (last - first) / (columns.length - 1) : 1;
  const x = (value) => LEFT + (inside * (value - first)) / (last - first + step);
  return {
    low,
    high,
    y: (value) => TOP + (height - TOP - BOTTOM) * (1 - (value - low) / span),
    from: (at) => x(columns[at].x),
    to: (at) => x(at + 1 < columns.length ? columns[at + 1].x : last + step),
    nearest: (left) => {
      const at = columns.findIndex((each, n) => left < x(n + 1 < columns.length ? columns[n + 1].x : last + step));
      return at < 0 ? columns.length - 1 : at;
    },
  };
}

function paint(canvas, columns, place, { marked, width, height }) {
  const ratio = devicePixelRatio || 1,
    style = getComputedStyle(canvas);
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const pen = canvas.getContext("2d");
  if (!pen) return;
  pen.scale(ratio, ratio);
  pen.fillStyle = style.getPropertyValue("--series-1");
  columns.forEach((column, at) => {
    const dense = column.counts.map((each, n) => each / (column.edges[n + 1] - column.edges[n] || 1e-12));
    const most = Math.max(...dense);
    const left = place.from(at),
      wide = Math.max(1, place.to(at) - left - (place.to(at) - left > 6 ? 1 : 0));
    dense.forEach((each, n) => {
      if (!each) return;
      const top = place.y(column.edges[n + 1]),
        tall = Math.max(1, place.y(column.edges[n]) - top);
      pen.globalAlpha = 0.12 + 0.88 * Math.sqrt(each / most);
      pen.fillRect(left, top, wide, tall);
    });
    pen.globalAlpha = 1;
  });
  pen.strokeStyle = style.getPropertyValue("--ink");
  paintMeans(pen, columns, place);
  if (!marked) return;
  const at = columns.indexOf(marked);
  pen.strokeRect(place.from(at) - 0.5, TOP, place.to(at) - place.from(at), height - TOP - BOTTOM);
}

// A line through the means of the columns that have one.
function paintMeans(pen, columns, place) {
  pen.beginPath();
  columns.forEach((column, at) => {
    if (!Number.isFinite(column.mean)) return;
    pen.lineTo(place.from(at), place.y(column.mean));
    pen.lineTo(place.to(at), place.y(column.mean));
  });
  pen.stroke();
}
