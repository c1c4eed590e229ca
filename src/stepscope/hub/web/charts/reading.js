// Reading lines from the hub: the request for each kind of x axis, and how a response becomes the line of a chart.
import { get, runPath } from "../api.js";
import { coarse, EXACT, marksOf, over, stepsWithin } from "./marks.js";

/**
 * How lines are looked at.
 * @typedef {object} How
 * @property {string} x step, time, relative or metric
 * @property {string | null} [xKey] the metric along x, where x is "metric"
 * @property {string | number} ranks all, each, or the number of one
 * @property {number | null} from
 * @property {number | null} to
 * @property {number} points
 * @property {boolean} [ghosts] whether superseded attempts are drawn
 */

const MAX_LINES = 64; // in one answer

/**
 * The lines of some metrics, as the hub answers; where each rank has one, in as many requests as their number takes.
 * @param {string} run
 * @param {How} how
 * @param {{ key: string, ranks?: number[] }[]} metrics
 * @param {Record<string, any>} params
 * @param {AbortSignal} signal
 * @returns {Promise<any[]>}
 */
export async function readLines(run, how, metrics, params, signal) {
  const found = [];
  for (const { keys, ranks } of params.by_rank ? portions(metrics) : [{ keys: metrics.map(({ key }) => key) }]) {
    const asked = seriesParams(how, keys, ranks ? { ...params, rank: ranks } : params);
    found.push(...(await get(runPath(run, "series"), asked, signal)).series);
  }
  return found;
}

/**
 * Metrics in groups whose ranks are lines of one answer; a metric of more ranks than that is several groups.
 * @param {{ key: string, ranks?: number[] }[]} metrics
 */
export function portions(metrics) {
  /** @type {{ keys: string[], ranks?: number[], size: number }[]} */
  const groups = [];
  for (const { key, ranks = [] } of metrics) {
    const size = Math.max(ranks.length, 1),
      last = groups.at(-1);
    if (last && last.size + size <= MAX_LINES) {
      last.keys.push(key);
      last.size += size;
    } else if (size <= MAX_LINES) groups.push({ keys: [key], size });
    else
      for (let at = 0; at < size; at += MAX_LINES)
        groups.push({ keys: [key], ranks: ranks.slice(at, at + MAX_LINES), size: MAX_LINES });
  }
  return groups;
}

/**
 * The parameters of the question. Over another metric both lines are read by step, each step a mark of its own.
 * @param {How} how
 * @param {string[]} keys
 * @param {Record<string, any>} params
 */
export function seriesParams(how, keys, params = {}) {
  const paired = how.x === "metric";
  const align = how.ranks === "all" && (how.x === "time" || how.x === "relative");
  return {
    key: keys,
    align: align || null,
    x: paired ? "step" : how.x,
    points: paired ? EXACT : how.points,
    ...(paired ? {} : { from: how.from, to: how.to }),
    ...params,
  };
}

/** @param {How} how */
export function rankParams({ ranks }) {
  return ranks === "each" ? { by_rank: true } : typeof ranks === "number" ? { rank: ranks } : {};
}

/**
 * The metric along x, and within a zoom the steps at which it was there, read as closely as possible.
 * @param {string} run
 * @param {How} how
 * @param {Record<string, any>} params
 * @param {AbortSignal} signal
 */
export async function readAlong(run, how, params, signal) {
  /** @type {[number | null, number | null] | null} */
  const window = how.from === null && how.to === null ? null : [how.from, how.to];
  const { xKey } = how;
  if (!xKey) throw new Error("no metric is chosen for x");
  const read = async (steps) => {
    const line = (await readLines(run, how, [{ key: xKey }], { ...params, ...steps }, signal))[0];
    return { marks: marksOf(line, EXACT), ranks: line.ranks.length };
  };
  const whole = await read({}),
    steps = window && stepsWithin(whole.marks, window);
  if (!steps) return { ...whole, window, steps: {} };
  const range = { from: steps[0], to: steps[1] };
  return { ...(coarse(whole.marks) ? await read(range) : whole), window, steps: range };
}

/**
 * What earlier attempts logged at steps that a later one repeated.
 * @param {string} run
 * @param {How} how
 * @param {{ key: string, ranks?: number[] }[]} metrics
 * @param {number[]} attempts
 * @param {AbortSignal} signal
 */
export async function readSuperseded(run, how, metrics, attempts, signal) {
  const read = async (each) => {
    const along = how.x === "metric" ? await readAlong(run, how, { attempts: each }, signal) : null;
    const params = { attempts: each, ...rankParams(how), ...along?.steps };
    return (await readLines(run, how, metrics, params, signal)).map((line) => ({ line, along }));
  };
  return (await Promise.all(attempts.map(read))).flat().filter(({ line }) => line.total > 0);
}

/**
 * A line of the hub's answer as a chart draws it.
 * @param {any} line
 * @param {number} at the place that gives its colour
 * @param {{ points: number, ghost?: boolean, scoped?: boolean, along?: any }} how
 */
export function lineOf(line, at, { points, ghost = false, scoped = false, along = null }) {
  const plain = marksOf(line, along ? EXACT : points);
  const marks = along
    ? over(along.marks, plain, { ranks: along.ranks, mine: line.ranks.length, window: along.window })
    : plain;
  return {
    id: ghost ? "ghost" + at : at,
    rank: line.rank,
    scope: line.scope,
    ghost,
    marks,
    last: line.last,
    aligned: line.aligned,
    places: new Map(),
    colour: null, // of the theme: the feed gives it
    at,
    name: (line.rank === null ? "all ranks" : "rank " + line.rank) + (scoped ? ` · ${line.scope || "no scope"}` : ""),
    origin: line.origin,
  };
}
