// Charts of logged tables: lines, points, bars, histograms and matrices, as whoever logged them asks for.
import { html } from "../h.js";
import { get, runPath } from "../api.js";
import { useFetch } from "../use.js";
import { count, number, ticks } from "../parts/format.js";

const POINTS = 10000, // that are drawn
  LINES = 20, // as many as there are colours
  BARS = 200,
  CLASSES = 200,
  WIDTH = 360,
  HEIGHT = 220,
  LEFT = 46,
  RIGHT = 10,
  TOP = 8,
  BOTTOM = 34;

export function TableChart({ id, file, chart }) {
  const fetched = useFetch(
    (signal) =>
      readRows(
        (offset) => get(runPath(id, "files/table"), { name: file.name, artifact: "", limit: POINTS, offset }, signal),
        chart.style === "matrix" ? CLASSES ** 2 : POINTS,
      ),
    [id, file.name, chart.style],
  );
  if (fetched.error) return html`<p class="muted">${fetched.error.message}</p>`;
  if (!fetched.value) return html`<p class="muted">Loading the chart…</p>`;
  const { columns, rows, total } = fetched.value;
  const at = (name) => columns.indexOf(chart[name]);
  const caption = file.caption || chart.title;
  const problem = missing(chart, columns);
  return html`<figure class="media-chart">
    ${
      problem
        ? html`<p class="muted">The table has no column ${problem}.</p>`
        : chart.style === "matrix"
          ? html`<${Matrix} rows=${rows.map((row) => [row[at("y")], row[at("x")], row[at("value")]])}
              whole=${total <= rows.length} />`
          : html`<${Plotted} chart=${chart} lines=${linesOf(chart, rows, at("x"), at("y"), at("by"))} />`
    }
    ${caption && html`<figcaption>${caption}</figcaption>`}
    ${total > rows.length && html`<p class="muted">The first ${count(rows.length)} of ${count(total)} points are drawn.</p>`}
  </figure>`;
}

/** A table of which pages are read until there are so many rows. */
export async function readRows(page, most) {
  let found = await page(0);
  while (found.next !== null && found.rows.length < most) {
    const more = await page(found.next);
    found = { ...more, rows: [...found.rows, ...more.rows] };
  }
  return found;
}

const NEEDED = { matrix: ["x", "y", "value"], histogram: ["x"] };

/** The first column that the chart needs and the table lacks. */
export function missing(chart, columns) {
  const needed = Object.hasOwn(NEEDED, chart.style) ? NEEDED[chart.style] : ["x", "y"];
  const lacking = needed.find((name) => !columns.includes(chart[name]));
  return lacking ? chart[lacking] || lacking : null;
}

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

function linesOf(chart, rows, x, y, by) {
  if (chart.style === "histogram") return [{ name: "", points: binned(rows.map((row) => row[x]).filter(isNumber)) }];
  const found = new Map();
  for (const row of rows) {
    const name = by < 0 || row[by] === null ? "" : String(row[by]);
    if (!found.has(name)) found.set(name, { name, points: [] });
    found.get(name).points.push([row[x], isNumber(row[y]) ? row[y] : null]);
  }
  return [...found.values()];
}

// Counts between equally wide bounds, each at its middle.
function binned(values) {
  if (!values.length) return [];
  const low = values.reduce((a, b) => Math.min(a, b)),
    high = values.reduce((a, b) => Math.max(a, b)),
    bins = high > low ? Math.min(30, Math.ceil(Math.sqrt(values.length)) + 1) : 1,
    width = (high - low) / bins || 1,
    counts = new Array(bins).fill(0);
  for (const value of values) counts[Math.min(bins - 1, Math.floor((value - low) / width))]++;
  return counts.map((each, at) => [low + (at + 0.5) * width, each]);
}

/** The places of points from left to right: numbers as they are, and the names of bars in their order. */
export function placed(bars, points) {
  const named = bars && points.some(([x]) => !isNumber(x));
  const places = named ? [...new Set(points.map(([x]) => String(x)))].slice(0, BARS) : null;
  const across = (x) => (places ? places.indexOf(String(x)) : x);
  return { places, across, isShown: ([x]) => isNumber(across(x)) && (!places || across(x) >= 0) };
}

function Plotted({ chart, lines: all }) {
  const lines = all.slice(0, LINES);
  const bars = chart.style === "bars" || chart.style === "histogram";
  const points = lines.flatMap((line) => line.points).filter(([, y]) => y !== null);
  const { places, across, isShown } = placed(bars, points);
  const drawn = points.filter(isShown);
  if (!drawn.length) return html`<p class="muted">There are no numbers to draw.</p>`;
  const xs = extent(
      drawn.map(([x]) => across(x)),
      bars ? 0.5 : 0,
    ),
    ys = extent([...drawn.map(([, y]) => y), ...(bars ? [0] : [])], 0);
  const X = (x) => LEFT + ((across(x) - xs[0]) / (xs[1] - xs[0])) * (WIDTH - LEFT - RIGHT),
    Y = (y) => HEIGHT - BOTTOM - ((y - ys[0]) / (ys[1] - ys[0])) * (HEIGHT - TOP - BOTTOM);
  const room = (WIDTH - LEFT - RIGHT) / Math.max(new Set(drawn.map(([x]) => x)).size, 1);
  const words = `${chart.style} of ${chart.y || "count"} over ${chart.x}, ${count(drawn.length)} points`;
  return html`<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label=${words}>
      <${Axes} xs=${xs} ys=${ys} X=${(x) => X(places ? places[x] : x)} Y=${Y} chart=${chart} places=${places} />
      ${lines.map(
        (
          line,
          at,
        ) => html`<${Line} key=${line.name} line=${line} style=${chart.style} X=${X} Y=${Y} zero=${Y(Math.max(ys[0], 0))}
          colour=${`var(--series-${at + 1})`} isShown=${isShown} room=${room} />`,
      )}
    </svg>
    ${
      lines.length > 1 &&
      html`<ul class="chart-lines">${lines.map(
        (line, at) =>
          html`<li key=${line.name}><i style=${`background: var(--series-${at + 1})`}></i>${line.name || "–"}</li>`,
      )}</ul>`
    }
    ${all.length > LINES && html`<p class="muted">The first ${LINES} of ${count(all.length)} lines are drawn.</p>`}`;
}

function extent(values, margin) {
  const low = values.reduce((a, b) => Math.min(a, b)),
    high = values.reduce((a, b) => Math.max(a, b));
  return high > low || margin ? [low - margin, high + margin] : [low - 0.5, high + 0.5];
}

function Axes({ xs, ys, X, Y, chart, places }) {
  const along = places ? named(places) : even(xs).map((value, at, all) => [value, ticks(all)[at]]);
  const up = even(ys);
  const texts = ticks(up);
  return html`<g class="chart-axes">
    ${up.map(
      (value, at) => html`<g key=${at}><line x1=${LEFT} x2=${WIDTH - RIGHT} y1=${Y(value)} y2=${Y(value)} />
        <text x=${LEFT - 5} y=${Y(value) + 3} text-anchor="end">${texts[at]}</text></g>`,
    )}
    ${along.map(
      ([value, text], at) =>
        html`<text key=${at} x=${X(value)} y=${HEIGHT - BOTTOM + 13} text-anchor="middle">${text}</text>`,
    )}
    <text class="chart-name" x=${(LEFT + WIDTH - RIGHT) / 2} y=${HEIGHT - 6} text-anchor="middle">${brief(chart.x)}</text>
    <text class="chart-name" transform="translate(9 ${(HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">
      ${brief(chart.y || "count")}</text></g>`;
}

const brief = (text, most = 30) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

// Some of the names below bars, as many as there is room for.
function named(places) {
  const stride = Math.ceil(places.length / 8);
  return places
    .map((text, at) => [at, brief(text, Math.max(4, Math.floor(48 / Math.min(places.length, 8))))])
    .filter((_, at) => at % stride === 0);
}

// Four to six round values within a range.
function even([low, high]) {
  const rough = (high - low) / 4,
    unit = 10 ** Math.floor(Math.log10(rough)),
    step = [1, 2, 5, 10].map((each) => each * unit).find((each) => each >= rough) || rough,
    found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9 && found.length < 10; value += step)
    found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  return found;
}

function Line({ line, style, X, Y, zero, colour, isShown, room }) {
  const drawn = line.points.filter(isShown);
  if (style === "points")
    return drawn
      .filter(([, y]) => y !== null)
      .map(([x, y], at) => html`<circle key=${at} cx=${X(x)} cy=${Y(y)} r="2.5" fill=${colour} fill-opacity="0.7" />`);
  if (style === "bars" || style === "histogram") {
    const width = Math.max(1, Math.min(room * (style === "bars" ? 0.7 : 0.98), 60));
    return drawn
      .filter(([, y]) => y !== null)
      .map(
        ([x, y], at) => html`<rect key=${at} x=${X(x) - width / 2} width=${width} y=${Math.min(Y(y), zero)}
          height=${Math.abs(zero - Y(y))} fill=${colour}><title>${`${x}: ${number(y)}`}</title></rect>`,
      );
  }
  const lonely = drawn.filter(([, y], at) => y !== null && !hasValue(drawn[at - 1]) && !hasValue(drawn[at + 1]));
  return html`<path d=${pathOf(drawn, X, Y)} fill="none" stroke=${colour} stroke-width="1.6" stroke-linejoin="round" />
    ${lonely.map(([x, y], at) => html`<circle key=${at} cx=${X(x)} cy=${Y(y)} r="2.5" fill=${colour} />`)}`;
}

const hasValue = (point) => point !== undefined && point[1] !== null;

// A line through the points, with gaps where there is no value.
function pathOf(points, X, Y) {
  let path = "",
    pen = "M";
  for (const [x, y] of points) {
    if (y !== null) path += `${pen}${X(x).toFixed(2)} ${Y(y).toFixed(2)}`;
    pen = y === null ? "M" : "L";
  }
  return path;
}

// A confusion matrix: actual classes in rows, predictions in columns; the share of each row is its shade.
function Matrix({ rows, whole }) {
  const all = [...new Set(rows.flatMap(([y, x]) => [String(y), String(x)]))],
    classes = all.slice(0, CLASSES);
  const cells = new Map(rows.map(([y, x, value]) => [`${y}\0${x}`, isNumber(value) ? value : 0]));
  const value = (y, x) => cells.get(`${y}\0${x}`) || 0;
  const sum = (y) => classes.reduce((total, x) => total + value(y, x), 0);
  return html`<div class="media-table matrix" tabindex="0" role="region" aria-label="Confusion matrix"><table class="plain">
    <thead><tr><th>actual \\ predicted</th>${classes.map((x) => html`<th class="num" key=${x}>${x}</th>`)}</tr></thead>
    <tbody>${classes.map((y) => {
      const row = sum(y) || 1;
      return html`<tr key=${y}><th>${y}</th>
        ${classes.map((x) => {
          const share = Math.min(value(y, x) / row, 1);
          return html`<td key=${x} class=${"num" + (x === y ? " right" : "")} style=${`--share: ${share.toFixed(3)}`}
            title=${`${y} as ${x}: ${(100 * share).toFixed(1)} %`}>${whole || cells.has(`${y}\0${x}`) ? number(value(y, x)) : "–"}</td>`;
        })}</tr>`;
    })}</tbody></table></div>
    ${all.length > CLASSES && html`<p class="muted">The first ${CLASSES} of ${count(all.length)} classes are shown.</p>`}`;
}
