// The step and the rank behind a mark that was clicked.
import { get, runPath } from "../api.js";
import { real } from "../parts/format.js";

export async function pick(run, key, mark, plot, view, onStep) {
  const { line, i } = mark,
    { marks } = line;
  const flagged = marks.flags[i] > 0,
    value = flagged ? "flag" : plot.valueOf(mark);
  const [first, last] = marks.steps?.[i] || [marks.x[i], marks.last[i]];
  const known =
    !flagged && (value === marks.high[i] ? marks.highRank[i] : value === marks.low[i] ? marks.lowRank[i] : null);
  const exact = (view.x === "step" || view.x === "metric") && first === last;
  if (exact && (line.rank !== null || typeof known === "number")) return onStep(first, line.rank ?? known);
  if (exact && !flagged && value === marks.mid[i] && marks.wide) return onStep(first, null);
  const kind = view.x === "metric" ? "step" : view.x;
  const pad = kind === "step" ? 0 : 2e-6;
  const found = await resolve(
    run,
    key,
    { from: first - pad, to: last + pad, x: kind, rank: line.rank, scope: line.scope },
    value,
  ).catch(() => null);
  if (found && found.step !== null) return onStep(found.step, found.rank);
  return kind === "step" ? onStep(Math.round(first), line.rank) : undefined;
}

// From a mark to the one step and rank behind it: a range of many steps is fetched again, narrower, until it is one step.
// Returns { step, rank } of the value that stands out in the mark, or null. `value` says which value was clicked.
export async function resolve(run, key, { from, to, x = "step", rank = null, scope }, wanted) {
  for (let round = 0; round < 6; round++) {
    const params = {
      key,
      x,
      from,
      to,
      points: 20000,
      ...(typeof rank === "number" ? { rank } : {}),
      ...(scope ? { scope } : {}),
    };
    const line = (await get(runPath(run, "series"), params)).series[0];
    if (!line || !line.total) return null;
    if (line.shape === "raw") return picked(line.columns, wanted);
    const at = bucketOf(line.columns, wanted);
    from = line.columns.x[at];
    to = line.columns.x_last[at];
  }
  return { step: Math.round(from), rank };
}

// Which bucket holds what is wanted: "NaN", or the number nearest to one.
function bucketOf(columns, wanted) {
  if (wanted === "flag")
    return Math.max(
      0,
      columns.flags.findIndex((flag) => flag > 0),
    );
  let best = 0,
    away = Infinity;
  for (let i = 0; i < columns.x.length; i++) {
    for (const value of [columns.min[i], columns.max[i]]) {
      if (value !== null && Math.abs(real(value) - wanted) < away) {
        away = Math.abs(real(value) - wanted);
        best = i;
      }
    }
  }
  return best;
}

function picked(columns, wanted) {
  let best = -1,
    away = Infinity;
  for (let i = 0; i < columns.value.length; i++) {
    const value = real(columns.value[i]);
    const off = wanted === "flag" ? (Number.isFinite(value) ? Infinity : 0) : Math.abs(value - wanted);
    if (off < away) {
      away = off;
      best = i;
    }
  }
  if (best < 0) best = 0;
  return { step: columns.step[best], rank: columns.rank[best] };
}
