// Steps per second in the table of runs: one that is on its way is not shown as none.
import assert from "node:assert/strict";
import { test } from "node:test";
import { isRateKnown, rate } from "../runs/sparks.js";

const run = { id: "a", step: 7, status: "finished" };

test("a rate that was not fetched yet is not known", () => {
  assert.equal(isRateKnown(run, false), false);
  assert.equal(isRateKnown({ ...run, status: "running" }, false), false);
});

test("a rate that was fetched, or that nobody fetches, is known", () => {
  assert.equal(isRateKnown(run, true), true);
  assert.equal(rate(run, undefined), "–");
  assert.equal(isRateKnown({ ...run, step: null }, false), true);
  assert.equal(isRateKnown({ ...run, status: "running", recentRate: 3 }, false), true);
});
