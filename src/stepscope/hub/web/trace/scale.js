// Time along x: the part that is seen, ticks, and moving about in it.
import { number, ticks as texts } from "../parts/format.js";

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

export function ticks(view, width) {
  const range = view.to - view.from,
    most = Math.max(2, Math.floor(width / 110));
  const rough = range / most,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((each) => power * each >= rough);
  const found = [];
  for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) found.push(at);
  const [factor, unit] = UNITS.find(([, , least]) => view.to >= least);
  const said = texts(found, (at, digits) => (at === 0 ? "0" : `${number(at * factor, digits)} ${unit}`));
  return found.map((at, i) => ({ at, text: said[i] }));
}

// All ticks are in one unit: how many of it a millisecond is, its name, and from how many milliseconds on it is used.
const UNITS = [
  [1e-3, "s", 1000],
  [1, "ms", 1],
  [1e3, "µs", 1e-3],
  [1e6, "ns", 0],
];
