// The lines of a log: stored ones, older ones on demand, and live ones; each once, in the order of time.
import { get } from "../api.js";
import { spelled } from "../parts/exact.js";
import { attrParams } from "../parts/fields.js";
import { plain } from "../parts/format.js";

export const MOST = 50000;
const PAGE = 400,
  LONG = 1000,
  PAGES = 10,
  TICK = 1e-6;
const SEVERITIES = { TRACE: 1, DEBUG: 5, INFO: 9, WARN: 13, ERROR: 17, FATAL: 21 };

const params = (wanted) => ({
  run: wanted.run,
  step: wanted.step,
  rank: wanted.rank,
  q: wanted.q,
  severity: wanted.severity,
  kind: wanted.kind,
  trace_id: wanted.trace,
  span_id: wanted.span,
  ...attrParams(wanted.attrs),
});

// One page of the newest lines, or of those before the oldest known; oldest first.
export async function page(wanted, before, signal, limit = PAGE) {
  const until = before ? (before.time + TICK).toFixed(6) : undefined,
    known = before ? amounts(before.lines) : new Map();
  let offset = 0,
    lines;
  do {
    const answer = await get("logs", { ...params(wanted), sort: "newest", limit, until, offset }, signal);
    lines = answer.logs
      .filter((line) => taken(known, line))
      .reverse()
      .map(numbered);
    offset = answer.next;
  } while (!lines.length && offset !== null);
  return { lines, more: offset !== null };
}

// What was stored since a moment, oldest first, read from the newest back. `whole` tells whether the moment was reached:
// where too much came meanwhile, or no moment is known, one begins anew with what was found.
export async function since(wanted, time) {
  let lines = [],
    more = true;
  for (let turn = 0; more && turn < (time === null ? 1 : PAGES) && !(lines[0]?.time < time); turn++) {
    const found = await page(wanted, lines.length ? edge(lines) : null, undefined, LONG);
    lines = [...found.lines, ...lines];
    more = found.more;
  }
  return { lines: lines.map(numbered), more, whole: time !== null && (!more || lines[0].time < time) };
}

let number = 0;
function numbered(line) {
  return { ...line, n: number++ };
}

// Where the page before these lines ends: its time, and the lines known at about that time. The hub tells times to the
// microsecond and knows them better, so the lines at the edge are fetched again.
export function edge(lines) {
  const time = lines[0].time;
  let many = 0;
  while (many < lines.length && lines[many].time <= time + 2 * TICK) many++;
  return { time, lines: lines.slice(0, many) };
}

// Whether a new line matches the filters; the same conditions as the store's.
export function fits(line, wanted) {
  if (wanted.kind ? line.kind !== wanted.kind : line.kind === "alert") return false;
  if (wanted.step !== "" && String(line.step) !== wanted.step) return false;
  if (wanted.rank !== "" && String(line.rank) !== wanted.rank) return false;
  if (wanted.severity && line.severity_number < SEVERITIES[wanted.severity]) return false;
  if (wanted.trace && line.trace_id !== wanted.trace) return false;
  if (wanted.span && line.span_id !== wanted.span) return false;
  if (wanted.q && !(text(line) + " " + (line.name || "")).toLowerCase().includes(wanted.q.toLowerCase())) return false;
  return wanted.attrs.every((each) => {
    const at = each.indexOf("=");
    const value = line.attrs[each.slice(0, at)];
    return value !== undefined && value !== null && spelled(value) === each.slice(at + 1);
  });
}

export const text = (line) => (line.body === null || line.body === undefined ? "" : plain(line.body));

const same = (line) => `${line.time} ${line.run} ${line.rank} ${line.kind} ${line.name} ${line.span_id} ${text(line)}`;

function amounts(lines) {
  const found = new Map();
  for (const line of lines) found.set(same(line), (found.get(same(line)) || 0) + 1);
  return found;
}

// Whether a line is not in the multiset of known lines.
function taken(known, line) {
  const left = known.get(same(line)) || 0;
  if (left) known.set(same(line), left - 1);
  return !left;
}

// Lines with new ones behind them, in the order of time and without those that are known already.
export function joined(lines, fresh) {
  if (!fresh.length) return lines;
  const first = Math.min(...fresh.map((line) => line.time));
  let at = lines.length;
  while (at > 0 && lines[at - 1].time >= first) at--;
  const known = amounts(lines.slice(at));
  const added = fresh
    .map((line) => (line.n === undefined ? numbered(line) : line))
    .filter((line) => taken(known, line));
  if (!added.length) return lines;
  const tail = [...lines.slice(at), ...added].sort((a, b) => a.time - b.time || a.n - b.n);
  const all = [...lines.slice(0, at), ...tail];
  return all.length > MOST ? all.slice(all.length - MOST) : all;
}
