// How results of runs relate to their settings: values of any field, and how much of a result each setting explains.
import { flat } from "../parts/format.js";
import { settingAt } from "../runs/columns.js";

const MAX_KINDS = 20; // different values of a setting; a text with more is a name, not a choice
const MAX_TICKS = 8; // values that are each a tick of their axis

/**
 * The value of a field in a run, as a number where it is one; undefined where the run has none.
 * @param {any} run
 * @param {string} field
 * @returns {number | string | undefined}
 */
export function valueOf(run, field) {
  if (run.columns?.[field]) return plainValue(run.columns[field].value);
  const [kind, name = ""] = field.split(/\.(.*)/s);
  if (kind === "config") return plainValue(settingAt(run.config, name));
  if (kind === "metrics") return plainValue(run.values?.[name]?.value);
  if (["min", "max", "best"].includes(kind)) return plainValue(run.values?.[name]?.[kind]);
  return plainValue(run[field]);
}

function plainValue(value) {
  if (value === null || value === undefined) return undefined;
  if (typeof value === "number" || value instanceof Number) return Number(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** The settings that differ between runs, in their order. */
export function varying(runs) {
  const values = new Map();
  for (const run of runs)
    for (const [path, value] of flat(run.config || {})) {
      if (!values.has(path)) values.set(path, { seen: new Set(), runs: 0 });
      const found = values.get(path);
      found.seen.add(String(value));
      found.runs++;
    }
  return [...values].filter(([, { seen, runs: many }]) => seen.size > 1 || many < runs.length).map(([path]) => path);
}

/**
 * A scale of some values: numbers from the lowest to the highest, by their logarithm when they span two decades; texts
 * in order beside each other.
 * @param {(number | string | undefined)[]} values
 */
export function scaleOf(values) {
  const known = values.filter((value) => value !== undefined);
  const numbers = known.filter((value) => typeof value === "number" && Number.isFinite(value));
  if (numbers.length < known.length || !known.length) {
    const kinds = [...new Set(known.map(String))].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
    const place = new Map(kinds.map((kind, at) => [kind, kinds.length > 1 ? at / (kinds.length - 1) : 0.5]));
    return { kinds, log: false, low: 0, high: 1, at: (value) => place.get(String(value)), ticks: kinds };
  }
  let low = Infinity,
    high = -Infinity;
  for (const value of /** @type {number[]} */ (numbers)) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  const log = low > 0 && high / low >= 100,
    along = log ? Math.log : (value) => value,
    width = along(high) - along(low);
  const at = (value) => (width > 0 ? (along(value) - along(low)) / width : 0.5);
  const back = (place) => (log ? Math.exp(along(low) + place * width) : low + place * width);
  const few = [...new Set(numbers)].sort((a, b) => Number(a) - Number(b));
  return { kinds: null, log, low, high, at, ticks: few.length <= MAX_TICKS ? few : [0, 0.25, 0.5, 0.75, 1].map(back) };
}

/**
 * The ticks that can be labelled beside each other: places in pixels, the ends first, each so far from the others.
 * @param {number[]} places
 * @param {number} least
 * @returns {number[]} their positions in the list, in its order
 */
export function labelled(places, least) {
  const ends = places.length > 1 ? [0, places.length - 1] : [0];
  const kept = [];
  for (const at of [...ends, ...places.keys()])
    if (at < places.length && !kept.some((other) => Math.abs(places[other] - places[at]) < least)) kept.push(at);
  return kept.sort((a, b) => a - b);
}

/**
 * What each setting alone explains of a result, the most first: the share of the variance of the result's ranks between
 * the groups of equal values, less what chance would give so many groups; for numbers at least the square of their rank
 * correlation. `sign` is that correlation. Runs without the setting do not count. Settings together, and
 * settings that go along with others, are not told apart.
 * @param {any[]} runs
 * @param {string[]} settings
 * @param {string} result
 */
export function importance(runs, settings, result) {
  const known = runs.filter((run) => Number.isFinite(valueOf(run, result)));
  const found = settings.map((path) => {
    const having = known.filter((run) => valueOf(run, "config." + path) !== undefined);
    const results = ranked(having.map((run) => Number(valueOf(run, result))));
    const values = having.map((run) => valueOf(run, "config." + path));
    const numeric = values.every((value) => typeof value === "number" && Number.isFinite(value));
    const sign = numeric ? correlation(ranked(/** @type {number[]} */ (values)), results) : null;
    const kinds = new Set(values.map(String)).size;
    const between = kinds <= MAX_KINDS ? explained(values.map(String), results) : 0;
    return { path, kinds, sign, share: Math.max(between, sign === null ? 0 : sign * sign) };
  });
  return { runs: known.length, rows: found.filter(({ kinds }) => kinds > 1).sort((a, b) => b.share - a.share) };
}

// The ranks of numbers; equal ones share the mean of theirs.
export function ranked(values) {
  const order = values.map((_, at) => at).sort((a, b) => values[a] - values[b]),
    made = new Array(values.length);
  for (let from = 0; from < order.length;) {
    let to = from;
    while (to < order.length && values[order[to]] === values[order[from]]) to++;
    for (let k = from; k < to; k++) made[order[k]] = (from + to - 1) / 2;
    from = to;
  }
  return made;
}

const mean = (values) => values.reduce((sum, each) => sum + each, 0) / (values.length || 1);

export function correlation(a, b) {
  const ma = mean(a),
    mb = mean(b);
  let ab = 0,
    aa = 0,
    bb = 0;
  for (let i = 0; i < a.length; i++) {
    ab += (a[i] - ma) * (b[i] - mb);
    aa += (a[i] - ma) ** 2;
    bb += (b[i] - mb) ** 2;
  }
  return aa > 0 && bb > 0 ? ab / Math.sqrt(aa * bb) : 0;
}

// The share of the variance that lies between groups, corrected for their number (epsilon squared).
function explained(groups, values) {
  const by = new Map();
  values.forEach((value, at) => {
    if (!by.has(groups[at])) by.set(groups[at], []);
    by.get(groups[at]).push(value);
  });
  const all = mean(values),
    left = values.length - by.size;
  let between = 0,
    total = 0;
  for (const value of values) total += (value - all) ** 2;
  for (const list of by.values()) between += list.length * (mean(list) - all) ** 2;
  if (left < 1 || total === 0) return 0;
  return Math.max(0, (between - ((by.size - 1) * (total - between)) / left) / total);
}
