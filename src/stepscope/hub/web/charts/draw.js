// What a chart draws itself on uPlot's canvas: bands, lines, marks of values that are not finite, flags.
import { colour } from "../theme.js";
import { MINUS, NAN, PLUS } from "./marks.js";
import { smooth } from "./scales.js";

const RATIO = () => devicePixelRatio || 1;

// A line (`Y` tells where a value is): its min/max band and edges, the mean, and over them what smoothing makes of it.
// `faint`: another line is in focus, `front`: this one is; `bare`: without the band.
export function drawLine(u, line, { Y, weight, log, faint = false, front = false, bare = false }) {
  const { marks } = line,
    ctx = u.ctx,
    r = RATIO();
  if (!marks.length) return;
  const { min, max } = u.scales.x;
  const first = Math.max(0, marks.find(min) - 1);
  let end = first;
  while (end < marks.length && marks.x[end] <= max) end++;
  end = Math.min(marks.length, end + 1);
  const X = (i) => u.valToPos(marks.x[i], "x", true);
  const ok = log ? (value) => value !== null && value > 0 : (value) => value !== null;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = line.ghost ? colour("--ghost") : line.colour;
  ctx.lineJoin = "round";
  const soft = weight > 0 && !line.ghost;
  if (marks.wide && !bare) band(ctx, marks, first, end, X, Y, ok, { r, ghost: line.ghost, faint, soft });
  ctx.globalAlpha = line.ghost ? 0.55 : soft ? (faint ? 0.1 : 0.3) : faint ? 0.22 : 1;
  ctx.lineWidth = (line.ghost ? 1 : soft ? 1 : front ? 2.4 : 1.5) * r;
  ctx.setLineDash((line.dash || []).map((length) => length * r));
  path(ctx, marks.mid, first, end, X, Y, ok, r);
  if (soft) {
    ctx.globalAlpha = faint ? 0.25 : 1;
    ctx.lineWidth = (front ? 2.6 : 1.75) * r;
    path(ctx, smooth(marks, weight), first, end, X, Y, ok, r);
  }
  ctx.restore();
}

// Draw values as a line with gaps; a value alone between gaps is a dot.
function path(ctx, values, first, end, X, Y, ok, r) {
  const dots = end - first <= 60;
  ctx.beginPath();
  let before = false;
  for (let i = first; i < end; i++) {
    if (!ok(values[i])) {
      before = false;
      continue;
    }
    const x = X(i),
      y = Y(values[i]);
    if (before) ctx.lineTo(x, y);
    else ctx.moveTo(x, y);
    if (!before && (i + 1 >= end || !ok(values[i + 1]))) ctx.lineTo(x + 0.01, y);
    before = true;
  }
  ctx.lineCap = "round";
  ctx.stroke();
  if (!dots) return;
  ctx.beginPath();
  for (let i = first; i < end; i++) {
    if (!ok(values[i])) continue;
    const x = X(i),
      y = Y(values[i]);
    ctx.moveTo(x + 1.9 * r, y);
    ctx.arc(x, y, 1.9 * r, 0, 2 * Math.PI);
  }
  ctx.fill();
}

function band(ctx, marks, first, end, X, Y, ok, { r, ghost, faint, soft }) {
  const floor = (value) => (ok(value) ? Y(value) : ctx.canvas.height);
  for (let i = first; i < end;) {
    if (!ok(marks.high[i])) {
      i++;
      continue;
    }
    let stop = i;
    while (stop < end && ok(marks.high[stop])) stop++;
    ctx.beginPath();
    for (let j = i; j < stop; j++) ctx.lineTo(X(j), Y(marks.high[j]));
    for (let j = stop - 1; j >= i; j--) ctx.lineTo(X(j), floor(marks.low[j]));
    ctx.closePath();
    ctx.globalAlpha = ghost ? 0.12 : faint ? 0.08 : 0.16;
    ctx.fill();
    // The edges make a spike as thin as one mark visible.
    ctx.globalAlpha = ghost ? 0.25 : faint ? 0.22 : soft ? 0.4 : 0.5;
    ctx.lineWidth = r;
    ctx.beginPath();
    for (let j = i; j < stop; j++) ctx.lineTo(X(j), Y(marks.high[j]));
    ctx.stroke();
    ctx.beginPath();
    for (let j = i; j < stop; j++) ctx.lineTo(X(j), floor(marks.low[j]));
    ctx.stroke();
    i = stop;
  }
}

// Signs at the edge where values were not finite: ⊗ for NaN and ▽ for -Infinity below, △ for +Infinity above.
export function drawNonFinite(u, lines) {
  const ctx = u.ctx,
    r = RATIO(),
    { left, top, width, height } = u.bbox,
    size = 3.6 * r;
  let drawn = 0;
  ctx.save();
  ctx.lineWidth = 1.4 * r;
  ctx.strokeStyle = colour("--bad");
  ctx.fillStyle = colour("--panel");
  for (const { marks, ghost } of lines) {
    if (!marks.flagged || ghost) continue;
    for (let i = 0; i < marks.length; i++) {
      if (!marks.flags[i]) continue;
      const x = Math.round(u.valToPos(marks.x[i], "x", true));
      if (x < left - 1 || x > left + width + 1) continue;
      const bottom = top + height - size - 2 * r;
      if (marks.flags[i] & NAN) crossed(ctx, x, bottom, size);
      if (marks.flags[i] & PLUS) triangle(ctx, x, top + size + 2 * r, size, -1);
      if (marks.flags[i] & MINUS) triangle(ctx, x, bottom, size, 1);
      drawn++;
    }
  }
  ctx.restore();
  return drawn;
}

function crossed(ctx, x, y, size) {
  const a = size * 0.7;
  ctx.beginPath();
  ctx.arc(x, y, size, 0, 2 * Math.PI);
  ctx.fill();
  ctx.moveTo(x - a, y - a);
  ctx.lineTo(x + a, y + a);
  ctx.moveTo(x + a, y - a);
  ctx.lineTo(x - a, y + a);
  ctx.stroke();
}

function triangle(ctx, x, y, size, down) {
  ctx.beginPath();
  ctx.moveTo(x, y + size * down);
  ctx.lineTo(x - size, y - size * 0.8 * down);
  ctx.lineTo(x + size, y - size * 0.8 * down);
  ctx.closePath();
  ctx.fill();
  ctx.stroke();
}

// The step that is being inspected.
export function drawMarker(u, x) {
  const ctx = u.ctx,
    r = RATIO(),
    { top, height } = u.bbox,
    at = Math.round(u.valToPos(x, "x", true)) + 0.5;
  ctx.save();
  ctx.fillStyle = colour("--accent");
  ctx.globalAlpha = 0.2;
  ctx.fillRect(at - 4 * r, top, 8 * r, height);
  ctx.globalAlpha = 1;
  ctx.beginPath();
  ctx.moveTo(at - 5 * r, top + height);
  ctx.lineTo(at + 5 * r, top + height);
  ctx.lineTo(at, top + height - 6 * r);
  ctx.fill();
  ctx.restore();
}

// Events and alerts as flags: a hairline down the chart and a pennant on top. flags: [{ x, kind, severity }].
export function drawFlags(u, flags) {
  const ctx = u.ctx,
    r = RATIO(),
    { left, top, width, height } = u.bbox;
  ctx.save();
  for (const flag of flags) {
    const x = Math.round(u.valToPos(flag.x, "x", true)) + 0.5;
    if (!(x >= left && x <= left + width)) continue;
    ctx.strokeStyle = ctx.fillStyle = colour(flag.colour);
    ctx.globalAlpha = flag.colour === "--muted" ? 0.22 : 0.42;
    ctx.lineWidth = r;
    ctx.setLineDash(flag.kind === "alert" ? [] : [2 * r, 3 * r]);
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x, top + height);
    ctx.stroke();
    ctx.globalAlpha = flag.colour === "--muted" ? 0.6 : 0.95;
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x + 6 * r, top + 2.5 * r);
    ctx.lineTo(x, top + 5 * r);
    ctx.fill();
  }
  ctx.restore();
}

// Findings about a chart's metric: its steps tinted, and the range of values that was expected there.
export function drawFindings(u, findings, Y) {
  const ctx = u.ctx,
    r = RATIO(),
    { top, height } = u.bbox;
  ctx.save();
  for (const { from, to, expected, colour: tone } of findings) {
    const first = u.valToPos(from, "x", true),
      last = u.valToPos(to, "x", true),
      pad = Math.max(0, 12 * r - (last - first)) / 2;
    ctx.fillStyle = colour(tone);
    ctx.globalAlpha = 0.1;
    ctx.fillRect(first - pad, top, last - first + 2 * pad, height);
    if (!expected) continue;
    const [low, high] = expected.map((value) => clamp(Y(value), top, top + height));
    ctx.fillStyle = ctx.strokeStyle = colour("--good");
    ctx.globalAlpha = 0.22;
    ctx.fillRect(first - pad - 6 * r, high, last - first + 2 * (pad + 6 * r), Math.max(low - high, 2 * r));
  }
  ctx.restore();
}

const clamp = (value, low, high) => (Number.isFinite(value) ? Math.min(Math.max(value, low), high) : high);

/**
 * The findings about a metric as a chart over steps draws them; the hub judges, the page only shows.
 * @param {{ key: string | null, also: string[], step: number | null, first_step: number | null, last_step: number | null,
 *   expected: (number | string)[] | null, severity: string, text: string, muted: string }[]} findings
 * @param {string} key
 */
export function findingsOf(findings, key) {
  return findings
    .filter((each) => each.step !== null && !each.muted && (each.key === key || each.also.includes(key)))
    .map((each) => ({
      from: each.first_step,
      to: each.last_step,
      text: each.text,
      colour: /^(ERROR|FATAL)/.test(each.severity) ? "--bad" : "--warn",
      expected: each.key === key && each.expected ? each.expected.map(Number) : null,
    }));
}

// Events and alerts of a run, placed along x.
export function flagsOf(records, kind, origin) {
  if (kind === "metric") return [];
  const made = [],
    there = new Set();
  for (const record of records) {
    const x = kind === "step" ? record.step : kind === "time" ? record.time : origin ? record.time - origin : null;
    if (x === null || x === undefined) continue;
    // Every rank may say the same of a step; one flag is enough.
    const same = kind === "step" && `${x} ${record.kind} ${record.name}`;
    if (same && there.has(same)) continue;
    there.add(same);
    made.push({ x, kind: record.kind, colour: colourOf(record), record });
  }
  return made;
}

function colourOf(record) {
  if (record.severity_number >= 17) return "--bad";
  if (record.severity_number >= 13 || record.kind === "alert") return "--warn";
  return "--muted";
}
