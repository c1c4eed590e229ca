import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { lastText, withPoint } from "../parts/last.js";

const CASES = JSON.parse(readFileSync(new URL("./last_value.json", import.meta.url), "utf8"));

for (const { said, points, value, ranks, step, text } of CASES) {
  test(`the last value of the live stream: ${said}`, () => {
    const newest = Math.max(...points.map(([, attempt]) => attempt)); // an attempt that begins is read from the hub
    let last = null;
    for (const [rank, attempt, at, , given] of points)
      if (attempt === newest) last = withPoint(last, rank, at, Number(given));
    const wanted = Number(value);
    assert.ok(Object.is(last.value, wanted) || Math.abs(last.value - wanted) <= 1e-12 * Math.abs(wanted), last.value);
    assert.deepEqual([last.ranks, last.step, lastText(last.ranks.length, last.step)], [ranks, step, text]);
  });
}
