// The lines of a log: what was stored before, older ones on demand, and what comes, each once, in the order of time.
import { get } from "../api.js";
import { plain } from "../parts/format.js";
import { attrParams } from "../search/fields.js";

export const MOST = 50000;
const PAGE = 400;
const SEVERITIES = { TRACE: 1, DEBUG: 5, INFO: 9, WARN: 13, ERROR: 17, FATAL: 21 };

const params = (wanted) => ({
  run: wanted.run, step: wanted.step, rank: wanted.rank, q: wanted.q, severity: wanted.severity, kind: wanted.kind,
  trace_id: wanted.trace, span_id: wanted.span, ...attrParams(wanted.attrs),
});

// One page of the newest lines, or of those before the oldest known; oldest first.
export async function page(wanted, before, signal) {
  const answer = await get("logs", { ...params(wanted), sort: "newest", limit: PAGE, until: before?.time, offset: before?.same || 0 }, signal);
  return { lines: answer.logs.reverse().map(numbered), more: answer.next !== null };
}

// What was stored since a moment, oldest first.
export async function since(wanted, time, signal) {
  const answer = await get("logs", { ...params(wanted), sort: "oldest", limit: 1000, since: time }, signal);
  return answer.logs.map(numbered);
}

let number = 0;
function numbered(line) {
  return { ...line, n: number++ };
}

// Where the page before these lines ends: its time, and how many lines of that very time are known.
export function edge(lines) {
  const time = lines[0].time;
  let same = 0;
  while (same < lines.length && lines[same].time === time) same++;
  return { time, same };
}

// Whether a line that just came is wanted; the same conditions as the store's.
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
    return String(line.attrs[each.slice(0, at)]) === each.slice(at + 1);
  });
}

export const text = (line) => line.body === null || line.body === undefined ? "" : plain(line.body);

const same = (line) => `${line.time} ${line.run} ${line.rank} ${line.kind} ${line.name} ${line.span_id} ${text(line)}`;

// Lines with new ones behind them, in the order of time and without those that are known already.
export function joined(lines, fresh) {
  if (!fresh.length) return lines;
  const first = Math.min(...fresh.map((line) => line.time));
  let at = lines.length;
  while (at > 0 && lines[at - 1].time >= first) at--;
  const known = new Map();
  for (const line of lines.slice(at)) known.set(same(line), (known.get(same(line)) || 0) + 1);
  const added = fresh.map((line) => line.n === undefined ? numbered(line) : line).filter((line) => {
    const left = known.get(same(line)) || 0;
    if (left) known.set(same(line), left - 1);
    return !left;
  });
  if (!added.length) return lines;
  const tail = [...lines.slice(at), ...added].sort((a, b) => a.time - b.time || a.n - b.n);
  const all = [...lines.slice(0, at), ...tail];
  return all.length > MOST ? all.slice(all.length - MOST) : all;
}
