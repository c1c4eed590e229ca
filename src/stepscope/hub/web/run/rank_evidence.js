// Evidence of a finding by rank: the stacks that the processes left when they stood still, and how long each took in a span.
import { html, useMemo, useState } from "../h.js";
import { get } from "../api.js";
import { useFetch } from "../use.js";
import { count, lasting, millis } from "../parts/format.js";

const STANDING = ["hang", "collective_mismatch", "no_first_step"];
const LATER = 60; // seconds after a finding in which ranks still report where they stand
const MOST = 1000; // records of one request
const SHOWN = 6; // lines of a stack, the innermost
const MAX_BARS = 24;

/** Whether a finding has evidence by rank. */
export const isStanding = ({ kind }) => STANDING.includes(kind);
export const isOfSpan = ({ span, ranks, step, kind }) =>
  !STANDING.includes(kind) && Boolean(span) && ranks.length > 0 && step !== null;

/**
 * Ranks by their stack, the rarest first: equal ones are one group. `from` is the line at which a stack leaves that of most
 * ranks; `odd` says that most ranks stand elsewhere, all at one place.
 * @param {{ rank: number, stack: string, seconds?: number, collective?: any }[]} reports
 */
export function foldStacks(reports) {
  const groups = new Map();
  for (const report of reports) {
    const id = report.stack + "\n" + (report.collective?.name ?? "");
    if (!groups.has(id))
      groups.set(id, {
        lines: report.stack ? report.stack.split("\n") : [],
        collective: report.collective,
        ranks: [],
        seconds: 0,
      });
    const group = groups.get(id);
    group.ranks.push(report.rank);
    group.seconds = Math.max(group.seconds, Number(report.seconds) || 0);
  }
  const ordered = [...groups.values()].sort((a, b) => a.ranks.length - b.ranks.length || a.ranks[0] - b.ranks[0]);
  const usual = ordered.at(-1),
    agreed = usual && 2 * usual.ranks.length > reports.length;
  return ordered.map((group) => {
    const odd = Boolean(agreed) && group !== usual;
    let from = 0;
    while (odd && from < group.lines.length && group.lines[from] === usual.lines[from]) from++;
    return { ...group, ranks: group.ranks.sort((a, b) => a - b), odd, from: odd ? from : group.lines.length };
  });
}

/** Ranks in words, runs of them shortened: 0–5, 7. */
export function rankWords(ranks) {
  const parts = /** @type {number[][]} */ ([]);
  for (const rank of ranks) {
    const last = parts.at(-1);
    if (last && rank === last[1] + 1) last[1] = rank;
    else parts.push([rank, rank]);
  }
  const words = parts.map(([first, last]) =>
    first === last ? `${first}` : last === first + 1 ? `${first}, ${last}` : `${first}–${last}`,
  );
  return `${ranks.length === 1 ? "rank" : "ranks"} ${words.join(", ")}`;
}

/** Where each rank stood, as it reported: equal stacks once, and what is different first. */
export function Stacks({ finding, run }) {
  const { since, value } = finding,
    until = since === null ? null : since + (Number(value) || 0) + LATER;
  const fetched = useFetch(
    (signal) =>
      get(
        "logs",
        { run: run.id, kind: "event", name: "process.position", since, until, sort: "newest", limit: MOST },
        signal,
      ),
    [run.id, since, until],
  );
  const groups = useMemo(() => {
    const newest = new Map();
    for (const { rank, attempt, attrs } of fetched.value?.logs || [])
      if (!newest.has(rank) && (finding.attempt === null || attempt === finding.attempt))
        newest.set(rank, { ...attrs, rank, stack: String(attrs.stack ?? "") });
    return foldStacks([...newest.values()].sort((a, b) => a.rank - b.rank));
  }, [fetched.value]);
  if (!groups.length) return null;
  return html`<div class="stacks" role="group" aria-label="Where each rank stands">
    ${groups.slice(0, MAX_BARS).map((group) => html`<${Stack} key=${group.ranks[0]} group=${group} />`)}
    ${groups.length > MAX_BARS && html`<p class="muted">And ${count(groups.length - MAX_BARS)} more places.</p>`}
  </div>`;
}

function Stack({ group }) {
  const { lines, ranks, odd, from, collective, seconds } = group;
  const [all, setAll] = useState(false);
  const where = [collective?.name && `in ${collective.name}`, seconds > 0 && `for ${lasting(seconds)}`]
    .filter(Boolean)
    .join(", ");
  const first = all ? 0 : Math.max(0, lines.length - SHOWN);
  return html`<section class=${"stack" + (odd ? " odd" : "")}>
    <h3>${rankWords(ranks)} ${odd && html`<span class="chip warn">odd one out</span>`}
      <span class="muted">${where}</span></h3>
    ${
      first > 0 &&
      html`<button type="button" class="button" onClick=${() => setAll(true)}
        >${count(first)} outer ${first === 1 ? "line" : "lines"}</button>`
    }
    ${
      lines.length
        ? html`<ol class="stack-lines mono" start=${first + 1}>${lines
            .slice(first)
            .map((line, at) => html`<li key=${at} class=${first + at >= from ? "apart" : ""}>${line}</li>`)}</ol>`
        : html`<p class="muted">No stack was recorded.</p>`
    }</section>`;
}

/**
 * How long each rank took in all spans of a name, the longest first.
 * @param {{ rank: number, duration_ms: number | null }[]} spans
 */
export function tookByRank(spans) {
  const by = new Map();
  for (const { rank, duration_ms: took } of spans) by.set(rank, (by.get(rank) ?? 0) + (took ?? 0));
  return [...by].map(([rank, took]) => ({ rank, took })).sort((a, b) => b.took - a.took || a.rank - b.rank);
}

/** Those that are drawn of many ranks: the blamed ones, and the longest and the shortest. */
export function someRanks(rows, blamed) {
  if (rows.length <= MAX_BARS) return rows;
  const half = MAX_BARS / 2;
  return rows.filter(({ rank }, at) => blamed.includes(rank) || at < half || at >= rows.length - half);
}

/** The time of each rank in the span of a finding, at its step. */
export function RankBars({ finding, run }) {
  const { span, step, ranks, attempt } = finding;
  const fetched = useFetch(
    (signal) => get("spans", { run: run.id, step, name: span, sort: "slowest", limit: MOST }, signal),
    [run.id, step, span],
  );
  const rows = useMemo(
    () => tookByRank((fetched.value?.spans || []).filter((each) => attempt === null || each.attempt === attempt)),
    [fetched.value],
  );
  if (rows.length < 2) return null;
  const shown = someRanks(rows, ranks),
    longest = rows[0].took || 1;
  return html`<figure class="rank-bars"><figcaption>${span} at step ${step}, by rank</figcaption>
    <ol>${shown.map(
      ({ rank, took }) => html`<li key=${rank} class=${ranks.includes(rank) ? "blamed" : ""}>
        <span class="rank-name">rank ${rank}</span>
        <span class="rank-track"><span style=${{ width: `${(100 * took) / longest}%` }}></span></span>
        <span class="mono">${millis(took)}</span></li>`,
    )}</ol>
    ${shown.length < rows.length && html`<p class="muted">${count(rows.length - shown.length)} ranks between them are left out.</p>`}
    ${fetched.value.next !== null && html`<p class="muted">There are more spans: these are the ${count(MOST)} longest.</p>`}
  </figure>`;
}
