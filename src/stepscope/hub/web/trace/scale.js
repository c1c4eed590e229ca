// Time along x: the part that is seen, ticks, and moving about in it.
import { millis } from "../parts/format.js";

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
  const range = view.to - view.from, most = Math.max(2, Math.floor(width / 110));
  const rough = range / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((each) => power * each >= rough);
  const found = [];
  for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) found.push({ at, text: at === 0 ? "0" : label(at, step) });
  return found;
}

// Enough figures to tell neighbours apart.
function label(at, step) {
  if (step >= 1000) return (at / 1000).toFixed(0) + "\u202fs";
  if (at >= 1000 && step >= 1) return (at / 1000).toFixed(3).replace(/0+$/, "").replace(/\.$/, "") + "\u202fs";
  if (step >= 1) return at.toFixed(0) + "\u202fms";
  if (at >= 1) return at.toFixed(Math.max(0, Math.ceil(-Math.log10(step)))) + "\u202fms";
  return millis(at);
}
