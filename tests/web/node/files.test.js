import assert from "node:assert/strict";
import test from "node:test";
import { missing, placed, readRows } from "../run/chart.js";
import { recolour } from "../run/layers.js";
import { readPages } from "../step/pages.js";

test("points left of zero are drawn in every style; of named bars only those that have a place", () => {
  const points = [-2, -1, 0, 3].map((x) => [x, 1]);
  for (const bars of [false, true]) assert.deepEqual(points.filter(placed(bars, points).isShown), points);
  const many = Array.from({ length: 300 }, (_, at) => [`name ${at}`, at]);
  assert.equal(many.filter(placed(true, many).isShown).length, 200);
  assert.deepEqual([["a", 1]].filter(placed(false, [["a", 1]]).isShown), []);
});

test("a style that every object has a field for needs the columns of a line", () => {
  for (const style of ["constructor", "__proto__", "line"])
    assert.equal(missing({ style, x: "a", y: "b" }, ["a"]), "b", style);
  assert.equal(missing({ style: "matrix", x: "a", y: "b", value: "c" }, ["a", "b"]), "c");
  assert.equal(missing({ style: "histogram", x: "a" }, ["a"]), null);
});

test("a table is read page by page until there are enough rows", async () => {
  const asked = [];
  const page = async (offset) => {
    asked.push(offset);
    return { columns: ["a"], rows: [offset, offset + 1], total: 6, next: offset + 2 < 6 ? offset + 2 : null };
  };
  assert.deepEqual((await readRows(page, 100)).rows, [0, 1, 2, 3, 4, 5]);
  assert.deepEqual((await readRows(page, 2)).rows, [0, 1]);
  assert.deepEqual(asked, [0, 2, 4, 0]);
});

test("a mask has the colours of its classes, and none where it is background", () => {
  const colours = Array.from({ length: 20 }, (_, at) => [at, 100 + at, 200]);
  const data = new Uint8ClampedArray([0, 0, 0, 255, 3, 3, 3, 255, 23, 23, 23, 255, 255, 255, 255, 255]);
  assert.deepEqual(recolour(data, colours), [3, 23, 255]);
  assert.deepEqual([...data], [0, 100, 200, 0, 3, 103, 200, 130, 3, 103, 200, 130, 15, 115, 200, 130]);
});

test("a step that is read again has the ranks that were read before", async () => {
  const ask = async (offset) => ({
    metrics: [{ key: "loss", unit: "", values: [offset] }],
    ranks: [offset, offset + 1],
    ...{ open_spans: [], logs: [], system: [] },
    all_ranks: { count: 6, next: offset + 2 < 6 ? offset + 2 : null },
  });
  const ranks = async (until) => (await readPages(ask, until)).ranks;
  assert.deepEqual(
    [await ranks(0), await ranks(2), await ranks(4)],
    [
      [0, 1],
      [0, 1],
      [0, 1, 2, 3],
    ],
  );
  assert.deepEqual(await ranks(Infinity), [0, 1, 2, 3, 4, 5]);
  assert.deepEqual((await readPages(ask, 4)).metrics[0].values, [0, 2]);
});
