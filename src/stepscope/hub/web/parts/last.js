// The last value of a metric as the hub defines it: the mean of the ranks at the last step. model/last_value.py says the same.
import { real } from "./format.js";

/**
 * @typedef {object} Last
 * @property {number | string} value
 * @property {number | null} step
 * @property {number[]} ranks
 * @property {(number | string)[]} values
 */

/**
 * The last value after a point of the live stream.
 * @param {Last | null} last
 * @param {number} rank
 * @param {number | null} step
 * @param {number} value
 * @returns {Last}
 */
export function withPoint(last, rank, step, value) {
  if (last && before(step, last.step)) return last;
  /** @type {Pick<Last, "ranks" | "values">} */
  const same = last && step === last.step ? last : { ranks: [], values: [] };
  const at = same.ranks.indexOf(rank),
    ranks = at < 0 ? [...same.ranks, rank] : same.ranks,
    values = at < 0 ? [...same.values, value] : same.values.map((old, i) => (i === at ? value : old));
  return { value: mean(values.map(real)), step, ranks, values };
}

const before = (step, other) => other !== null && (step === null || step < other);

/** @param {number[]} values */
function mean(values) {
  const all = values.reduce((sum, value) => sum + value, 0);
  if (values.every((value) => value === values[0])) return values[0];
  if (Number.isFinite(all) || !values.every(Number.isFinite)) return all / values.length;
  return values.reduce((sum, value) => sum + value / values.length, 0);
}

/**
 * What a last value is: mean of 4 ranks at step 199.
 * @param {number} ranks
 * @param {number | null} step
 */
export function lastText(ranks, step) {
  const what = ranks > 1 ? `mean of ${ranks} ranks` : "last value";
  return step === null ? what : `${what} at step ${step}`;
}
