// Rows of a grid of charts, and which of them are near the window.
import assert from "node:assert/strict";
import { test } from "node:test";
import { between, columnsIn, rowsOf } from "../charts/grid.js";

const list = (n) => Array.from({ length: n }, (_, at) => ({ key: String(at) }));

test("as many columns as fit, and one at least", () => {
  assert.deepEqual([100, 380, 769, 770, 1160].map(columnsIn), [1, 1, 1, 2, 3]);
});

test("a wide card has a row of its own", () => {
  assert.deepEqual(rowsOf(list(5), ["1"], 2), [
    { from: 0, to: 1 },
    { from: 1, to: 2 },
    { from: 2, to: 4 },
    { from: 4, to: 5 },
  ]);
});

test("what is before and behind is as high as its rows", () => {
  const rows = rowsOf(list(10), [], 1);
  assert.deepEqual(
    between(rows, () => 100, 250, 450),
    { from: 2, to: 5, before: 200, behind: 500 },
  );
  assert.deepEqual(
    between(rows, () => 100, 2000, 2500),
    { from: 0, to: 0, before: 1000, behind: 0 },
  );
  assert.deepEqual(
    between(rows, () => 100, -500, -100),
    { from: 0, to: 0, before: 0, behind: 1000 },
  );
});
