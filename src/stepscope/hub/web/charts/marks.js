// A line as marks: stretches of x with extremes, sum and count, so that no spike is lost however many points there are.
// Points can be added; beyond the limit stretches widen, extremes stay. Memory is bounded by the limit.
import { real } from "../parts/format.js";

export const NAN = 1,
  PLUS = 2,
  MINUS = 4;

export class Marks {
  /** @type {number[]} */ x = [];
  /** @type {number[]} */ last = [];
  /** @type {(number | null)[]} */ low = [];
  /** @type {(number | null)[]} */ high = [];
  /** @type {(number | null)[]} */ mid = [];
  /** @type {number[]} */ sum = [];
  /** @type {number[]} */ good = [];
  /** @type {number[]} */ count = [];
  /** @type {number[]} */ flags = [];
  /** @type {(number | null)[]} */ lowRank = [];
  /** @type {(number | null)[]} */ highRank = [];

  constructor(limit) {
    this.limit = limit;
    this.width = 0;
    this.version = 0;
    this.total = 0;
    this.clear();
  }

  clear() {
    this.x = [];
    this.last = [];
    this.low = [];
    this.high = [];
    this.mid = [];
    this.sum = [];
    this.good = [];
    this.count = [];
    this.flags = [];
    this.lowRank = [];
    this.highRank = [];
    this.wide = false;
    this.flagged = 0;
  }

  isWide(at) {
    const low = this.low[at],
      high = this.high[at];
    return low !== null && high !== null && high > low;
  }

  get length() {
    return this.x.length;
  }

  // Add a point; later ones usually come later in x, but any order is right.
  add(x, value, rank = 0) {
    const n = this.x.length;
    this.total++;
    this.version++;
    const at = n === 0 || x > this.last[n - 1] ? n : this.find(x);
    if (at < n && (this.x[at] === x || (x >= this.x[at] && x <= this.last[at]))) this.merge(at, x, value, rank);
    else if (at === n && n > 0 && this.width > 0 && x < this.x[n - 1] + this.width) this.merge(n - 1, x, value, rank);
    else this.insert(at, x, value, rank);
    if (this.x.length > 2 * this.limit) this.widen();
  }

  // The first mark that ends at x or later.
  find(x) {
    let low = 0,
      high = this.x.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.last[middle] < x) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // The mark nearest to x.
  nearest(x) {
    const at = this.find(x),
      n = this.x.length;
    if (at >= n) return n - 1;
    return at > 0 && x - this.last[at - 1] < this.x[at] - x ? at - 1 : at;
  }

  merge(at, x, value, rank) {
    if (x > this.last[at]) this.last[at] = x;
    this.count[at]++;
    if (!Number.isFinite(value)) {
      this.flag(at, value);
      return;
    }
    this.good[at]++;
    this.sum[at] += value;
    this.average(at, value, 1);
    if (this.low[at] === null || value < this.low[at]) {
      this.low[at] = value;
      this.lowRank[at] = rank;
    }
    if (this.high[at] === null || value > this.high[at]) {
      this.high[at] = value;
      this.highRank[at] = rank;
    }
    if (this.isWide(at)) this.wide = true;
  }

  // The mean after `more` values of this mean came in; a sum past the greatest number is done without.
  average(at, value, more) {
    const sum = this.sum[at],
      good = this.good[at];
    this.mid[at] = Number.isFinite(sum) ? sum / good : mean(this.mid[at], value, good / more);
  }

  insert(at, x, value, rank) {
    const finite = Number.isFinite(value),
      known = finite ? value : null;
    const put = (array, item) => {
      if (at === array.length) array.push(item);
      else array.splice(at, 0, item);
    };
    put(this.x, x);
    put(this.last, x);
    put(this.low, known);
    put(this.high, known);
    put(this.mid, known);
    put(this.sum, finite ? value : 0);
    put(this.good, finite ? 1 : 0);
    put(this.count, 1);
    put(this.flags, 0);
    put(this.lowRank, rank);
    put(this.highRank, rank);
    if (!finite) this.flag(at, value);
  }

  flag(at, value) {
    const kind = Number.isNaN(value) ? NAN : value > 0 ? PLUS : MINUS;
    this.flags[at] |= kind;
    this.flagged |= kind;
  }

  // Join marks until no more than the limit are left; each stretch of x is as wide as the others.
  widen() {
    const n = this.x.length,
      span = this.last[n - 1] - this.x[0];
    const width = Math.max(this.width * 2, span / this.limit) || 1;
    const old = { ...this },
      origin = this.x[0];
    this.clear();
    let place = -1;
    for (let i = 0; i < n; i++) {
      const bucket = Math.floor((old.x[i] - origin) / width),
        at = this.x.length - 1;
      if (bucket !== place) {
        place = bucket;
        this.x.push(old.x[i]);
        this.last.push(old.last[i]);
        this.low.push(old.low[i]);
        this.high.push(old.high[i]);
        this.mid.push(old.mid[i]);
        this.sum.push(old.sum[i]);
        this.good.push(old.good[i]);
        this.flags.push(old.flags[i]);
        this.count.push(old.count[i]);
        this.lowRank.push(old.lowRank[i]);
        this.highRank.push(old.highRank[i]);
        continue;
      }
      this.last[at] = Math.max(this.last[at], old.last[i]);
      this.sum[at] += old.sum[i];
      this.good[at] += old.good[i];
      this.count[at] += old.count[i];
      this.flags[at] |= old.flags[i];
      if (old.good[i] > 0) {
        this.extremes(at, old, i);
        this.average(at, old.mid[i], old.good[i]);
      }
    }
    this.wide = this.low.some((low, i) => this.isWide(i));
    this.flagged = old.flagged;
    this.width = width;
  }

  extremes(at, old, i) {
    if (this.low[at] === null || old.low[i] < this.low[at]) {
      this.low[at] = old.low[i];
      this.lowRank[at] = old.lowRank[i];
    }
    if (this.high[at] === null || old.high[i] > this.high[at]) {
      this.high[at] = old.high[i];
      this.highRank[at] = old.highRank[i];
    }
  }
}

// The marks of a line as the API gives it.
export function marksOf(line, limit) {
  const marks = new Marks(limit),
    columns = line.columns;
  if (line.shape === "raw") {
    for (let i = 0; i < columns.x.length; i++) marks.add(columns.x[i], real(columns.value[i]), columns.rank[i]);
  } else {
    const n = columns.x.length;
    marks.x = columns.x;
    marks.last = columns.x_last;
    marks.low = columns.min.map(finite);
    marks.high = columns.max.map(finite);
    marks.mid = columns.mean.map(finite);
    marks.good = columns.count.map((count, i) => (marks.mid[i] === null ? 0 : count));
    marks.sum = marks.good.map((count, i) => (marks.mid[i] ?? 0) * count);
    marks.count = columns.count;
    marks.flags = columns.flags;
    marks.lowRank = new Array(n).fill(null);
    marks.highRank = new Array(n).fill(null);
    marks.wide = true;
    marks.flagged = columns.flags.reduce((all, flag) => all | flag, 0);
    if (n > 1 && !line.aligned) marks.width = (columns.x_last[n - 1] - columns.x[0]) / n;
  }
  marks.total = line.total;
  return marks;
}

const finite = (value) => (typeof value === "number" ? value : null);

// A mean that takes in one value more, the n-th; written so that it cannot overflow.
const mean = (before, value, n) => (before === null ? value : before + (value / n - before / n));

// y over another metric: both lines come by step, and only steps that surely have both are drawn.

// The most marks that the hub gives: over so many steps each step is a mark of its own.
export const EXACT = 20000;

// The marks of y where x was at that step; `ranks` is how many log x, `mine` how many log y, `window` what is seen of x.
// `withoutX` counts points at steps without x, `unmatched` those of ranges too long to match.
export function over(xs, ys, { ranks = 1, mine = 1, window = null }) {
  const made = Object.assign(new Marks(ys.limit), {
    withoutX: 0,
    unmatched: 0,
    wide: ys.wide,
    steps: /** @type {number[][]} */ ([]),
  });
  const order = [];
  for (let i = 0; i < ys.length; i++) {
    const at = shared(xs, ys, i, ranks, mine);
    if (at < 0) made[at === NONE ? "withoutX" : "unmatched"] += ys.count[i];
    else if (xs.mid[at] === null) made.withoutX += ys.count[i];
    else if (within(xs.mid[at], window)) order.push([xs.mid[at], i]);
  }
  order.sort((a, b) => a[0] - b[0]);
  for (const [x, i] of order) {
    made.x.push(x);
    made.last.push(x);
    for (const name of ["low", "high", "mid", "sum", "good", "count", "flags", "lowRank", "highRank"])
      made[name].push(ys[name][i]);
    made.flagged |= ys.flags[i];
    made.total += ys.count[i];
  }
  made.steps = order.map(([, i]) => [ys.x[i], ys.last[i]]);
  return made;
}

const NONE = -1,
  UNSURE = -2;
const within = (x, window) =>
  !window || !((window[0] !== null && x < window[0]) || (window[1] !== null && x > window[1]));

// The mark of x with a step that a mark of y has too. Of a stretch the first and last step are known to be there, and all
// between when it has more points than would fit with a step left out.
function shared(xs, ys, i, ranks, mine) {
  const first = ys.x[i],
    last = ys.last[i],
    dense = full(ys, i, mine);
  let found = NONE;
  for (let at = xs.find(first); at < xs.length && xs.x[at] <= last; at++) {
    const low = xs.x[at],
      high = xs.last[at];
    const both =
      [first, last].some(
        (step) => step === low || step === high || (step > low && step < high && full(xs, at, ranks)),
      ) ||
      (dense && [low, high].some((step) => step > first && step < last));
    if (both) return at;
    if (!known(ys, i) || !known(xs, at)) found = UNSURE;
  }
  return found;
}

// All steps of a mark are known: it is one, or two points at its ends.
const known = (marks, i) => marks.x[i] === marks.last[i] || marks.count[i] === 2;
const full = (marks, i, ranks) => marks.count[i] > (marks.last[i] - marks.x[i]) * ranks;

// Whether some mark stands for several steps, so that asking within fewer steps tells more.
export const coarse = (marks) => marks.x.some((x, i) => marks.last[i] > x);

// From which step to which x was within a window; null where it never was.
export function stepsWithin(xs, [from, to]) {
  let first = null,
    last = null;
  for (let i = 0; i < xs.length; i++) {
    if (xs.low[i] === null || (from !== null && xs.high[i] < from) || (to !== null && xs.low[i] > to)) continue;
    first ??= xs.x[i];
    last = xs.last[i];
  }
  return first === null ? null : [first, last];
}
