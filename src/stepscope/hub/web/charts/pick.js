// Someone pointed at a mark: which step, on which rank?
import { resolve } from "./resolve.js";

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
