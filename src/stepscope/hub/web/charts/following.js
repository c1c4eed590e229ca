// Following a run: points of the live stream are appended to lines that were read; no requests are made here.
import { real } from "../parts/format.js";
import { withPoint } from "../parts/last.js";
import { Marks } from "./marks.js";

const PLACES = 256; // steps whose place in time is remembered

/**
 * Append points of a rank to its line; those at or before `behind` are in it already. Tells whether there is a line.
 * @param {any} entry
 * @param {import("./reading.js").How} how
 * @param {number} rank
 * @param {{ step: (number | null)[], time: number[], value: (number | string | null)[] }} columns
 */
export function append(entry, how, rank, columns, behind = -Infinity) {
  const line = lineFor(entry, how, rank);
  if (!line) return false;
  if (!entry.ranks.includes(rank)) entry.ranks.push(rank);
  for (let i = 0; i < columns.value.length; i++) {
    const at = placeOf(how.x, columns, i, line.origin);
    if (at === null || columns.value[i] === null) continue;
    line.last = withPoint(line.last, rank, columns.step[i], real(columns.value[i]));
    if (at <= behind || !within(at, how)) continue;
    line.marks.add(line.aligned ? aligned(line, columns.step[i], at) : at, real(columns.value[i]), rank);
  }
  return true;
}

// What came while a line was being read is appended behind its end; before that the line has it already.
export function catchUp(entry, how) {
  const waiting = entry.pending || [];
  entry.pending = null;
  for (const [rank, columns] of waiting) {
    const line = lineFor(entry, how, rank);
    if (line) append(entry, how, rank, columns, line.marks.length ? line.marks.last.at(-1) : -Infinity);
  }
}

/**
 * The line that takes the points of a rank: the one of all ranks, the rank's own, made where it is new, or none.
 * @param {any} entry
 * @param {import("./reading.js").How} how
 * @param {number} rank
 */
export function lineFor(entry, how, rank) {
  const own = entry.lines.filter((line) => !line.ghost);
  if (how.ranks === "all") return own[0] ?? null;
  if (typeof how.ranks === "number") return rank === how.ranks ? own[0] : null;
  const found = own.find((line) => line.rank === rank);
  if (found || !own.length) return found ?? null;
  const made = {
    ...own[0],
    id: rank,
    rank,
    marks: new Marks(how.points),
    last: null,
    colour: null,
    at: rank,
    name: "rank " + rank,
  };
  entry.lines = [...entry.lines, made];
  return made;
}

const placeOf = (x, { step, time }, i, origin) => (x === "step" ? step[i] : x === "time" ? time[i] : time[i] - origin);
const within = (at, { from, to }) => (from === null || at >= from) && (to === null || at <= to);

// Over time, all ranks of a step have the place of the first of them; readings without a step that of their round.
function aligned({ marks, places }, step, at) {
  if (step === null) {
    const n = marks.length,
      round = n > 1 ? (marks.x[n - 1] - marks.x[0]) / (n - 1) : 0;
    return n && at >= marks.x[n - 1] && at - marks.x[n - 1] < round / 2 ? marks.x[n - 1] : at;
  }
  if (!places.has(step)) places.set(step, at);
  if (places.size > PLACES) places.delete(places.keys().next().value);
  return places.get(step);
}
