// A trace as arrays: parents, rows within lanes, self times, and the critical path.
// Made for a hundred thousand spans: typed arrays, no object for each span, no recursion.
import { number, ticks as texts } from "../parts/format.js";
import { nameOf } from "../parts/run_names.js";
import { hue } from "./colours.js";

export function build(answer) {
  const { columns, lanes, names } = answer;
  const n = columns.span_id.length;
  const start = Float64Array.from(columns.start);
  const total = answer.duration_ms || 0;
  const open = new Uint8Array(n);
  const end = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    const lasts = columns.duration[i];
    open[i] = lasts === null ? 1 : 0;
    end[i] = lasts === null ? Math.max(total, start[i]) : start[i] + lasts;
  }
  const parent = parents(columns);
  const tree = children(parent, n);
  const { order, depth, size } = walk(parent, tree, columns.lane, n);
  const trace = {
    n,
    start,
    end,
    open,
    parent,
    tree,
    order,
    depth,
    size,
    names,
    hues: names.map(hue),
    lanes,
    total: span(end, total),
    traces: answer.traces,
    more: answer.more,
    begin: answer.begin,
    id: columns.span_id,
    name: columns.name,
    lane: columns.lane,
    status: columns.status,
    step: columns.step,
    traceOf: columns.trace,
  };
  trace.place = new Int32Array(n);
  for (let at = 0; at < n; at++) trace.place[order[at]] = at;
  trace.self = selfTimes(trace);
  trace.critical = criticalTimes(trace);
  trace.rows = layout(trace);
  trace.index = new Map();
  for (let i = 0; i < n; i++) trace.index.set(trace.id[i], i);
  trace.errors = errorsOf(trace);
  return trace;
}

function span(end, total) {
  let last = total;
  for (let i = 0; i < end.length; i++) if (end[i] > last) last = end[i];
  return last || 1;
}

function parents(columns) {
  const n = columns.span_id.length,
    index = new Map(),
    parent = new Int32Array(n).fill(-1);
  for (let i = 0; i < n; i++) index.set(columns.span_id[i], i);
  for (let i = 0; i < n; i++) {
    const at = columns.parent_id[i] ? index.get(columns.parent_id[i]) : undefined;
    if (at !== undefined && at !== i) parent[i] = at;
  }
  breakCycles(parent, n);
  return parent;
}

// In a cycle of parents the first span becomes a root.
function breakCycles(parent, n) {
  const state = new Uint8Array(n);
  for (let i = 0; i < n; i++) {
    const path = [];
    let at = i;
    while (at >= 0 && state[at] === 0) {
      state[at] = 1;
      path.push(at);
      at = parent[at];
    }
    if (at >= 0 && state[at] === 1) parent[at] = -1;
    for (const each of path) state[each] = 2;
  }
}

// Children as ranges of one array; spans come in the order they began, so children do too.
function children(parent, n) {
  const first = new Int32Array(n + 2);
  for (let i = 0; i < n; i++) first[parent[i] + 2]++;
  for (let i = 1; i < n + 2; i++) first[i] += first[i - 1];
  const fill = first.slice(),
    list = new Int32Array(n);
  for (let i = 0; i < n; i++) list[fill[parent[i] + 1]++] = i;
  return { first, list };
}

const childrenOf = (tree, i) => tree.list.subarray(tree.first[i + 1], tree.first[i + 2]);

// Parents before children, lane after lane; `size` counts a span and all inside it.
function walk(parent, tree, lane, n) {
  const order = new Int32Array(n),
    depth = new Int32Array(n),
    size = new Int32Array(n).fill(1);
  const waiting = [...childrenOf(tree, -1)].sort((a, b) => lane[b] - lane[a] || b - a);
  let at = 0;
  while (waiting.length) {
    const i = waiting.pop();
    order[at++] = i;
    depth[i] = parent[i] < 0 ? 0 : depth[parent[i]] + 1;
    const inside = childrenOf(tree, i);
    for (let k = inside.length - 1; k >= 0; k--) waiting.push(inside[k]);
  }
  for (let k = n - 1; k >= 0; k--) if (parent[order[k]] >= 0) size[parent[order[k]]] += size[order[k]];
  return { order, depth, size };
}

// The time in which no child was at work; children may overlap and outlast their parent.
function selfTimes({ n, start, end, tree }) {
  const own = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    let covered = 0,
      reached = start[i];
    for (const child of childrenOf(tree, i)) {
      const low = Math.max(start[child], reached),
        high = Math.min(end[child], end[i]);
      if (high > low) {
        covered += high - low;
        reached = high;
      }
    }
    own[i] = Math.max(end[i] - start[i] - covered, 0);
  }
  return own;
}

// Walk back from the end of each root: a moment belongs to the child that ended last before it, else to the parent.
function criticalTimes({ n, start, end, tree }) {
  const critical = new Float64Array(n),
    waiting = [];
  for (const root of childrenOf(tree, -1)) waiting.push([root, start[root], end[root]]);
  while (waiting.length) {
    const [i, since, until] = waiting.pop();
    let at = until;
    const inside = [...childrenOf(tree, i)].sort((a, b) => end[b] - end[a] || start[b] - start[a]);
    for (const child of inside) {
      const low = Math.max(start[child], since),
        high = Math.min(end[child], at);
      if (low >= high) continue;
      critical[i] += at - high;
      waiting.push([child, low, high]);
      at = low;
    }
    critical[i] += at - since;
  }
  return critical;
}

// Rows of each lane, so that no two spans of a row overlap and a child is below its parent.
function layout({ n, order, parent, lane, lanes, start, end }) {
  const row = new Int32Array(n);
  const found = lanes.map(() => []),
    busy = lanes.map(() => []);
  for (let at = 0; at < n; at++) {
    const i = order[at],
      place = lane[i],
      up = parent[i],
      ends = busy[place];
    let mine = up >= 0 && lane[up] === place ? row[up] + 1 : 0;
    while (mine < ends.length && ends[mine] > start[i]) mine++;
    row[i] = mine;
    ends[mine] = Math.max(ends[mine] || 0, end[i]);
    (found[place][mine] ||= []).push(i);
  }
  for (const rows of found) {
    rows.forEach((spans, k) => {
      rows[k] = Int32Array.from((spans || []).sort((a, b) => start[a] - start[b]));
    });
  }
  return { row, lanes: found };
}

function errorsOf({ n, order, status }) {
  const found = [];
  for (let at = 0; at < n; at++) if (status[order[at]] === 2) found.push(order[at]);
  return found;
}

// What each name took, the most critical first.
export function byName(trace) {
  const rows = trace.names.map((name, number) => ({
    name,
    number,
    count: 0,
    total: 0,
    self: 0,
    critical: 0,
    longest: 0,
    slowest: -1,
    errors: 0,
  }));
  for (let i = 0; i < trace.n; i++) {
    const row = rows[trace.name[i]],
      lasts = trace.end[i] - trace.start[i];
    row.count++;
    row.total += lasts;
    row.self += trace.self[i];
    row.critical += trace.critical[i];
    if (trace.status[i] === 2) row.errors++;
    if (lasts >= row.longest) {
      row.longest = lasts;
      row.slowest = i;
    }
  }
  return rows.filter((row) => row.count).sort((a, b) => b.critical - a.critical);
}

export function laneTitle(lane, lanes) {
  const several = new Set(lanes.map((each) => each.run)).size > 1;
  const parts = [
    several ? nameOf(lane.run) : "",
    `rank ${lane.rank}`,
    lane.thread && (/^\d+$/.test(lane.thread) ? `thread ${lane.thread}` : lane.thread),
  ];
  return parts.filter(Boolean).join(" · ");
}

// Time along x: the part that is seen, ticks, and moving about in it.
export const whole = (trace) => ({ from: 0, to: trace.total });

// Zoom by a factor around a moment, never beyond the trace nor below a nanosecond.
export function zoomed(view, factor, around, total) {
  const width = Math.min(Math.max((view.to - view.from) * factor, 1e-6), total);
  const share = (around - view.from) / (view.to - view.from || 1);
  return held({ from: around - width * share, to: around + width * (1 - share) }, total);
}

export const moved = (view, by, total) => held({ from: view.from + by, to: view.to + by }, total);

function held({ from, to }, total) {
  const width = Math.min(to - from, total);
  const low = Math.min(Math.max(from, 0), total - width);
  return { from: low, to: low + width };
}

// Some space around a span.
export function around(trace, i) {
  const lasts = Math.max(trace.end[i] - trace.start[i], trace.total / 1e6);
  return held({ from: trace.start[i] - lasts * 0.15, to: trace.start[i] + lasts * 1.15 }, trace.total);
}

// The ticks of a ruler; one whose text would be cut off at the end has none.
export function ticks(view, width) {
  const range = view.to - view.from,
    most = Math.max(2, Math.floor(width / 110));
  const rough = range / most,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((each) => power * each >= rough) ?? 10);
  const found = [];
  for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) found.push(at);
  const [factor, unit] = UNITS.find(([, , least]) => view.to >= least) ?? UNITS[UNITS.length - 1];
  const labels = texts(found, (at, digits) => (at === 0 ? "0" : `${number(at * factor, digits)} ${unit}`));
  const fits = (at, text) => ((view.to - at) / range) * width > text.length * LETTER;
  return found.map((at, i) => ({ at, text: fits(at, labels[i]) ? labels[i] : "" }));
}

const LETTER = 7; // pixels

/**
 * All ticks are in one unit: how many of it a millisecond is, its name, and from how many milliseconds on it is used.
 * @type {[number, string, number][]}
 */
const UNITS = [
  [1e-3, "s", 1000],
  [1, "ms", 1],
  [1e3, "µs", 1e-3],
  [1e6, "ns", 0],
];
