// The span trees of all ranks side by side, against the median of the steps before.
import { html } from "../h.js";
import { href } from "../router.js";
import { count, millis, ratio } from "../parts/format.js";
import { MoreRanks } from "./pages.js";
import { Matrix } from "./values.js";
import { spanColour } from "../trace/colours.js";

const MAX_ROWS = 80,
  MAX_RANKS = 8;

export function SpanTable({ step, rank }) {
  if (!step.ranks.length) return null;
  const lanes = chosen(step.ranks, rank);
  const rows = merged(lanes);
  const causes = new Set(step.slow?.span_ids);
  return html`<section class="step-part" aria-label="Time">
    <header><h3>Time</h3><span class="muted">each rank against the median of the previous ${step.window} steps</span>
    </header>
    <${Matrix} label="Spans of each rank" focus=${step.step + " " + rank}><table class="plain matrix spans">
      <thead><tr><th scope="col">span</th><th scope="col" class="num">median</th>
        ${lanes.map(
          (lane) =>
            html`<th scope="col" key=${lane.rank}
                class=${"num" + (lane.rank === rank ? " at" : "")}>rank ${lane.rank}
                  ${lane.critical ? html`<span class="last" title="This rank ended last"> ◂ last</span>` : null}</th>`,
        )}
      </tr></thead>
      <tbody>${rows.slice(0, MAX_ROWS).map(
        (row) => html`<tr key=${row.path}>
        <th scope="row" style=${{ paddingLeft: row.depth * 14 + "px" }} title=${row.name}>${row.name}</th>
        <td class="num muted">${millis(row.usual)}</td>
        ${lanes.map(
          (lane) =>
            html`<${Cell} key=${lane.rank} span=${row.by.get(lane.rank)} at=${lane.rank === rank} causes=${causes} />`,
        )}
        </tr>`,
      )}</tbody>
    </table><//>
    ${rows.length > MAX_ROWS && html`<p class="muted note">${rows.length - MAX_ROWS} more spans in the traces.</p>`}
    ${
      step.all_ranks.count > lanes.length &&
      html`<p class="muted note">${count(step.all_ranks.count - lanes.length)} more ranks were faster.</p>`
    }
  </section>`;
}

// Where not every rank has a column: how long each name took on the fastest, the median and the slowest of all ranks.
export function AllRanks({ step, onRank }) {
  const { count: ranks, spans } = step.all_ranks;
  if (ranks <= MAX_RANKS || !spans.length) return null;
  const on = (rank) =>
    html`<button type="button" class="rank-button" onClick=${() => onRank(rank)}>rank ${rank}</button>`;
  return html`<section class="step-part" aria-label="All ranks">
    <header><h3>All ranks</h3><span class="muted">time of each span on ${count(ranks)} ranks</span></header>
    <${Matrix} label="Spans over all ranks" focus=${step.step}><table class="plain matrix all-ranks">
      <thead><tr><th scope="col">span</th><th scope="col" class="num">fastest</th><th scope="col"></th>
        <th scope="col" class="num">median</th><th scope="col" class="num">slowest</th><th scope="col"></th></tr></thead>
      <tbody>${spans.map(
        (span) => html`<tr key=${span.name}><th scope="row" title=${span.name}>${span.name}</th>
        <td class="num">${millis(span.min_ms)}</td><td class="muted">${on(span.min_rank)}</td>
        <td class="num">${millis(span.median_ms)}</td>
        <td class="num">${millis(span.max_ms)}</td><td class="muted">${on(span.max_rank)}</td></tr>`,
      )}</tbody>
    </table><//>
  </section>`;
}

function Cell({ span, at, causes }) {
  if (!span) return html`<td class=${"num" + (at ? " at" : "")}>–</td>`;
  const odd = span.status === "error" || span.slow > 1 ? " odd-3" : span.slow ? " odd-1" : "";
  const share = span.critical_ms && span.duration_ms ? Math.min(1, span.critical_ms / span.duration_ms) : 0;
  const isCause = causes.has(span.span_id);
  const title = [
    `${millis(span.own_ms)} self time`,
    `${millis(span.critical_ms)} on the critical path`,
    ...(span.message ? [span.message] : []),
  ].join("; ");
  return html`<td class=${"num" + odd + (at ? " at" : "") + (isCause ? " cause" : "")}
      title=${title}>${millis(span.duration_ms)}
    <span class="delta">${span.status === "error" ? "failed" : ratio(span.ratio)}</span>
    <i class="critical" style=${{ width: share * 100 + "%" }}></i></td>`;
}

// The rank that was pointed at, the one that ended last, then the slowest ones.
function chosen(ranks, rank) {
  if (ranks.length <= MAX_RANKS) return ranks;
  const first = (lane) => (lane.rank === rank ? 2 : 0) + (lane.critical ? 1 : 0);
  return [...ranks]
    .sort((a, b) => first(b) - first(a) || b.duration_ms - a.duration_ms)
    .slice(0, MAX_RANKS)
    .sort((a, b) => a.rank - b.rank);
}

// Rows by path of names: the second `attention` under `forward` is a row of its own.
function merged(lanes) {
  const rows = new Map();
  for (const lane of lanes) {
    const paths = new Map(),
      seen = new Map();
    /** @type {string | null} */
    let before = null;
    for (const span of lane.spans) {
      const parent = paths.get(span.parent_id) ?? "";
      const same = `${parent}/${span.name}`,
        nth = (seen.get(same) || 0) + 1;
      seen.set(same, nth);
      const path = `${same}#${nth}`;
      paths.set(span.span_id, path);
      if (!rows.has(path))
        insert(rows, path, before, { path, name: span.name, depth: span.depth, usual: span.usual_ms, by: new Map() });
      rows.get(path).by.set(lane.rank, span);
      before = path;
    }
  }
  return [...rows.values()];
}

// Put a row that only a later rank has behind the one before it there.
function insert(rows, path, before, row) {
  if (before === null || !rows.has(before) || [...rows.keys()].at(-1) === before) {
    rows.set(path, row);
    return;
  }
  const rest = [...rows];
  rows.clear();
  for (const [key, value] of rest) {
    rows.set(key, value);
    if (key === before) rows.set(path, row);
  }
}

// The timeline: one lane for each rank, spans as bars, the critical path in full colour, the hub's culprit outlined.
const ROW = 15,
  BARS = 400;

export function Lanes({ step, rank, more }) {
  if (!step.ranks.length) return null;
  const ranks = [...step.ranks].sort((a, b) => a.rank - b.rank);
  const longest = Math.max(...ranks.map((lane) => lane.duration_ms), 0.001);
  const spread = Math.max(...ranks.map((lane) => lane.offset_ms)) - Math.min(...ranks.map((lane) => lane.offset_ms));
  // Ranks that do not run in step are laid over each other from where each began.
  const aligned = spread > longest;
  const total = aligned ? longest : Math.max(...ranks.map((lane) => lane.offset_ms + lane.duration_ms), 0.001);
  const causes = new Set(step.slow?.span_ids);
  return html`<section class="step-part" aria-label="Timeline">
    <header><h3>Timeline</h3>
      <span class="muted">
        ${aligned ? "each rank from its own start" : "all ranks on one clock"}; bright: the critical path</span>
    </header>
    <div class="lanes">
      ${ranks.map(
        (lane) =>
          html`<${Lane} key=${lane.rank} lane=${lane} total=${total} shift=${aligned ? lane.offset_ms : 0}
              at=${lane.rank === rank} causes=${causes} />`,
      )}
      <div class="lane-scale muted"><span>0</span><span>${millis(total / 2)}</span><span>${millis(total)}</span></div>
    </div>
    <${MoreRanks} step=${step} more=${more} />
  </section>`;
}

function Lane({ lane, total, shift, at, causes }) {
  const depth = Math.min(5, Math.max(...lane.spans.map((span) => span.depth)) + 1);
  const critical = new Set(lane.critical_path);
  const bars = lane.spans.filter((span) => span.depth < 5 && (span.duration_ms ?? 0) / total > 0.0008).slice(0, BARS);
  return html`<div class=${"lane" + (at ? " at" : "")}><span class="lane-name">rank ${lane.rank}</span>
    <div class="lane-bars" style=${{ height: depth * ROW + 2 + "px" }}>
      ${bars.map((span) => {
        const left = ((span.offset_ms - shift) / total) * 100,
          width = (span.duration_ms / total) * 100;
        const tone = span.status === "error" ? "var(--bad)" : spanColour(span.name);
        const own = critical.has(span.span_id) && span.critical_ms > 0.02 * span.duration_ms;
        return html`<a key=${span.span_id} class=${"bar" + (own ? " critical" : "") + (causes.has(span.span_id) ? " cause" : "")}
            href=${href("traces", { trace: span.trace_id, span: span.span_id })} tabindex="-1"
          title=${`${span.name}: ${millis(span.duration_ms)}${span.usual_ms ? `, usually ${millis(span.usual_ms)}` : ""}`}
          style=${{
            left: left + "%",
            width: Math.max(width, 0.15) + "%",
            top: span.depth * ROW + "px",
            "--tone": tone,
          }}>
            ${width > 9 ? span.name : ""}</a>`;
      })}
    </div></div>`;
}
