// Axes: the range, and the positions and labels of ticks.
import { bytes, bytesOf, clock, count, lasting, number, ordinal, stepTicks, ticks } from "../parts/format.js";

/**
 * What a chart knows of a line: where its marks are along x, and their lowest, highest and mean values.
 * @typedef {{ marks: import("./marks.js").Marks, ghost?: boolean }} Line
 */

/**
 * The extent of x over all lines.
 * @param {Line[]} lines
 * @returns {[number, number] | null}
 */
function spanX(lines) {
  let low = Infinity,
    high = -Infinity;
  for (const { marks } of lines) {
    if (!marks.length) continue;
    low = Math.min(low, marks.x[0]);
    high = Math.max(high, marks.last[marks.length - 1]);
  }
  return low <= high ? [low, high] : null;
}

/**
 * @param {Line[]} lines
 * @param {[number | null, number | null] | null} [window]
 * @returns {[number, number]}
 */
export function rangeX(lines, window) {
  const whole = spanX(lines) || [0, 1];
  const low = window?.[0] ?? whole[0],
    high = window?.[1] ?? whole[1];
  return high > low ? [low, high] : [low - 0.5, high + 0.5];
}

/**
 * The extent of y within a stretch of x; `positive` leaves out what a log scale cannot show.
 * @param {Line[]} lines
 * @param {[number, number]} range
 * @param {boolean} [positive]
 * @param {number} [weight]
 */
export function spanY(lines, [from, to], positive, weight = 0) {
  let low = Infinity,
    high = -Infinity;
  for (const { marks } of lines) {
    const first = marks.find(from),
      soft = weight > 0 ? smooth(marks, weight) : null;
    for (let i = first; i < marks.length && marks.x[i] <= to; i++) {
      for (const value of soft ? [marks.low[i], marks.high[i], soft[i]] : [marks.low[i], marks.high[i]]) {
        if (value === null || (positive && value <= 0)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
  }
  return low <= high ? { low, high } : { low: positive ? 0.1 : 0, high: 1 };
}

const MAX_SAMPLES = 4000,
  TAIL = 0.02;

/**
 * The extent of y without outliers: the values between the 2nd and 98th percentile of the means, and half as much around.
 * @param {Line[]} lines
 * @param {[number, number]} range
 * @param {boolean} [positive]
 */
export function robustSpanY(lines, [from, to], positive) {
  const all = lines.reduce((sum, { marks }) => sum + marks.length, 0),
    stride = Math.max(1, Math.ceil(all / MAX_SAMPLES)),
    values = /** @type {number[]} */ ([]);
  for (const { marks } of lines) {
    for (let i = marks.find(from); i < marks.length && marks.x[i] <= to; i += stride) {
      const value = marks.mid[i];
      if (value !== null && !(positive && value <= 0)) values.push(value);
    }
  }
  if (!values.length) return spanY(lines, [from, to], positive);
  values.sort((a, b) => a - b);
  const at = (share) => values[Math.round(share * (values.length - 1))],
    low = at(TAIL),
    high = at(1 - TAIL),
    pad = (high - low) / 2,
    whole = spanY(lines, [from, to], positive);
  return { low: Math.max(whole.low, positive ? low / 2 : low - pad), high: Math.min(whole.high, high + pad) };
}

/**
 * The extent of y that a choice gives: "robust", or two ends of which each may be null; else all of it.
 * @param {Line[]} lines
 * @param {[number, number]} range
 * @param {{ y?: string | (number | null)[], log?: boolean, weight?: number }} how
 */
export function chosenSpanY(lines, range, { y, log, weight }) {
  if (y === "robust") return robustSpanY(lines, range, log);
  return spanY(lines, range, log, weight);
}

/**
 * How many marks lie outside the chosen range of y.
 * @param {Line[]} lines
 * @param {string | (number | null)[] | undefined} y
 * @param {boolean} log
 * @param {[number | null, number | null] | null} window
 */
export function outliers(lines, y, log, window) {
  if (!y) return 0;
  const range = rangeX(lines, window),
    span = typeof y === "string" ? robustSpanY(lines, range, log) : { low: y[0] ?? -Infinity, high: y[1] ?? Infinity };
  let out = 0;
  for (const { marks } of lines) {
    for (let i = marks.find(range[0]); i < marks.length && marks.x[i] <= range[1]; i++) {
      const low = marks.low[i],
        high = marks.high[i];
      if (low !== null && high !== null && (low < span.low || high > span.high)) out++;
    }
  }
  return out;
}

/**
 * What a log scale does to marks: how many are below it as a whole, and how many reach below it.
 * @param {Line[]} lines
 */
export function belowLog(lines) {
  let gone = 0,
    cut = 0;
  for (const { marks } of lines) {
    for (let i = 0; i < marks.length; i++) {
      const low = marks.low[i],
        high = marks.high[i];
      if (low === null || high === null || low > 0) continue;
      if (high > 0) cut++;
      else gone++;
    }
  }
  return { gone, cut };
}

/**
 * By how much y is drawn smaller or larger than it is: uPlot has no ticks for numbers past 1e32 or of more than 17 digits,
 * and differences of the greatest numbers are not numbers.
 * @param {{ low: number, high: number }} span
 */
export function factorY({ low, high }) {
  const most = Math.max(Math.abs(low), Math.abs(high));
  if (most === 0 || (most < 1e30 && most > 1e-12)) return 1;
  return 10 ** -Math.max(-300, Math.min(300, Math.floor(Math.log10(most))));
}

/**
 * @param {{ low: number, high: number }} span
 * @param {boolean} [log]
 * @returns {[number, number]}
 */
export function rangeY(span, log) {
  const { low, high } = span;
  if (log) {
    const pad = high / low < 1.0001 ? 2 : Math.exp(0.06 * (Math.log(high) - Math.log(low)));
    return [Math.max(low / pad, Number.MIN_VALUE), Math.min(high * pad, Number.MAX_VALUE)];
  }
  if (high - low <= Math.abs(high) * 1e-9) {
    const pad = Math.abs(high) * 0.1 || 1;
    return [low === 0 ? 0 : low - pad, high + pad];
  }
  const pad = (high - low) * 0.07;
  // A range that only just misses zero is better with it.
  const start = low >= 0 && low - pad < 0 ? 0 : low - pad;
  return [start, high + pad];
}

/**
 * How the ticks of x are written: as steps, times or numbers.
 * @param {string} kind
 */
export function tickX(kind) {
  if (kind === "time")
    return (u, places) =>
      ticks(places, (place, digits) => (digits > 3 ? clock(place, { exact: true }).slice(11) : clock(place).slice(-8)));
  if (kind === "relative")
    return (u, places) =>
      ticks(
        places.map((place) => (place < 0 ? null : place)),
        (place, digits) => (digits > 3 ? number(place, digits) + " s" : lasting(place)),
      );
  if (kind !== "step") return (u, places) => ticks(places);
  return (u, places) => stepTicks(places.map((place) => (Number.isInteger(place) ? place : null)));
}

export function roomX(kind) {
  if (kind === "time") return 76;
  return (u, axis, low, high) =>
    high - low < Math.abs(high) / 1000 ? Math.max(56, count(Math.round(high)).length * 8) : 56;
}

// `metric()` is { key, unit }: bytes are written as such.
export const tickY = (factor, metric) => (u, places) =>
  ticks(
    places.map((place) => (Number.isFinite(place) ? place / factor() : null)),
    writer(metric()),
  );

function writer({ key = "", unit = "" }) {
  const per = bytesOf(key, unit);
  return per === null ? number : (value, digits) => bytes(value, digits) + per;
}

// The width of the y axis: that of its longest text, and never less than most axes need.
export const roomY = (u, texts) =>
  Math.max(54, 12 + 6.2 * Math.max(...(texts || []).map((text) => (text || "").length)));

// Where ticks of a log scale can stand, as far as numbers go; uPlot's own end at 1e32.
export const logTicks = {
  incrs: (u, axis, low, high) => [Math.max(10, high - low)],
  splits: (u, axis, low, high) => {
    const first = Math.floor(Math.log10(low)),
      last = Math.ceil(Math.log10(high)),
      found = [];
    for (let power = first; power <= last; power++) {
      for (let times = 1; times <= (last - first > 15 ? 1 : 9); times++) found.push(Number(`${times}e${power}`));
    }
    const within = found.filter((tick) => tick >= low && tick <= high);
    return within.filter(isRound).length >= 2 ? within : evenTicks(low, high);
  },
};

const isPower = (tick) => Math.abs(Math.log10(tick) - Math.round(Math.log10(tick))) < 1e-9;
const isRound = (tick) => /^[125](e|\.0*e)/.test(tick.toExponential());

// Where values are within less than a decade: ticks as on a linear scale, of which there are always some.
function evenTicks(low, high) {
  const rough = (high - low) / 4,
    power = 10 ** Math.floor(Math.log10(rough)),
    pace = (rough / power < 1.5 ? 1 : rough / power < 3.5 ? 2 : rough / power < 7.5 ? 5 : 10) * power;
  const first = Math.ceil(low / pace),
    many = Math.min(Math.floor(high / pace) - first + 1, 12);
  return many > 0
    ? Array.from({ length: many }, (_, i) => Number(((first + i) * pace).toPrecision(15))).filter((tick) => tick > 0)
    : [];
}

// On a log scale only powers of ten are written, unless there are too few of them, and all ticks of a short stretch.
export const tickLog = (metric) => (u, places) => {
  const powers = places.filter((tick) => tick > 0 && isPower(tick)).length,
    rounds = places.filter((tick) => tick > 0 && isRound(tick)).length;
  const keep = (tick) => (powers >= 2 ? isPower(tick) : rounds >= 2 ? isRound(tick) : true);
  return ticks(
    places.map((tick) => (tick && keep(tick) ? tick : null)),
    writer(metric()),
  );
};

/**
 * A place along x in words.
 * @param {string} kind
 * @param {number | null | undefined} x
 */
export function formatX(kind, x) {
  if (x === null || x === undefined) return "";
  if (kind === "time") return clock(x, { exact: true });
  if (kind === "relative") return lasting(x);
  return kind === "step" ? "step " + ordinal(Math.round(x)) : number(x, 5);
}

/**
 * Smoothing: an exponential mean that owes nothing to its start, drawn over the raw band and never instead of it.
 * @param {Pick<import("./marks.js").Marks, "length" | "mid"> & { smoothed?: any, version?: number }} marks
 * @param {number} weight
 * @returns {(number | null)[]}
 */
export function smooth(marks, weight) {
  if (
    marks.smoothed?.weight === weight &&
    marks.smoothed.version === marks.version &&
    marks.smoothed.length === marks.length
  ) {
    return marks.smoothed.values;
  }
  const values = new Array(marks.length);
  let mean = 0,
    share = 0;
  for (let i = 0; i < marks.length; i++) {
    const value = marks.mid[i];
    if (value === null) {
      values[i] = null;
      continue;
    }
    mean = weight * mean + (1 - weight) * value;
    share = weight * share + (1 - weight);
    values[i] = mean / share;
  }
  marks.smoothed = { weight, version: marks.version, length: marks.length, values };
  return values;
}
