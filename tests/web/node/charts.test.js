import assert from "node:assert/strict";
import test from "node:test";
import { append, catchUp, lineFor } from "../charts/following.js";
import { Marks, marksOf } from "../charts/marks.js";
import { lineOf, rankParams, seriesParams } from "../charts/reading.js";
import { belowLog, rangeX, rangeY, smooth, spanY, tickX } from "../charts/scales.js";
import { resolve } from "../charts/pick.js";

const HOW = { x: "step", xKey: null, ranks: "all", from: null, to: null, points: 500 };
const marks = (...values) => {
  const made = new Marks(100);
  values.forEach((value, x) => made.add(x, value));
  return made;
};
const columns = (first, ...value) => ({ step: value.map((_, i) => first + i), time: value.map((_, i) => i), value });
const entry = (...lines) => ({ lines, ranks: [0], pending: null });
const line = (rank, at = 0) => ({
  id: at,
  rank,
  at,
  ghost: false,
  aligned: false,
  origin: 0,
  marks: new Marks(100),
  last: null,
});

test("a smoothed line starts at its first value and skips gaps", () => {
  assert.deepEqual(
    smooth(marks(1, 1, NaN, 1), 0.9).map((value) => value && Number(value.toFixed(9))),
    [1, 1, null, 1],
  );
  assert.ok(smooth(marks(0, 1), 0.5)[1] > 0.5);
});

test("the y axis starts at zero for values that are all zero, and keeps room otherwise", () => {
  assert.deepEqual(rangeY({ low: 0, high: 0 }, false), [0, 1]);
  assert.deepEqual(rangeY({ low: 5, high: 5 }, false), [4.5, 5.5]);
  assert.deepEqual(spanY([{ marks: marks(3, -1, 7) }], [0, 2], false, 0), { low: -1, high: 7 });
  assert.deepEqual(rangeX([{ marks: marks(1, 2, 3) }], [null, 1]), [0, 1]);
});

test("a log scale counts what it cannot show", () => {
  assert.deepEqual(belowLog([{ marks: marks(1, 0, -2) }]), { gone: 2, cut: 0 });
});

test("lines are asked for by what is along x", () => {
  assert.equal(seriesParams(HOW, ["loss"]).x, "step");
  assert.equal(seriesParams({ ...HOW, x: "time" }, ["loss"]).align, true);
  const paired = seriesParams({ ...HOW, x: "metric", from: 1, to: 2 }, ["loss"]);
  assert.deepEqual([paired.x, paired.from, paired.points], ["step", undefined, 20000]);
  assert.deepEqual(
    [rankParams(HOW), rankParams({ ...HOW, ranks: "each" }), rankParams({ ...HOW, ranks: 3 })],
    [{}, { by_rank: true }, { rank: 3 }],
  );
});

test("an answer becomes a line", () => {
  const raw = { shape: "raw", total: 2, columns: { x: [1, 2], value: [3, "NaN"], rank: [0, 0], step: [1, 2] } };
  const last = { value: "NaN", step: 2, ranks: [0], values: ["NaN"] };
  const made = lineOf({ key: "loss", rank: null, ranks: [0], scope: "", origin: 0, last, ...raw }, 0, { points: 10 });
  assert.deepEqual([made.name, made.last, made.marks.length], ["all ranks", last, marksOf(raw, 10).length]);
});

test("points of the stream are appended within the zoom", () => {
  const one = entry(line(null));
  assert.equal(append(one, { ...HOW, from: 1, to: 2 }, 0, columns(0, 5, 6, 7, 8)), true);
  assert.deepEqual(one.lines[0].marks.x, [1, 2]);
});

test("what came while a line was read is appended behind its end", () => {
  const one = entry(line(null));
  append(one, HOW, 0, columns(0, 1, 2, 3));
  one.pending = [[0, columns(1, 9, 9, 4)]];
  catchUp(one, HOW);
  assert.deepEqual(
    [one.lines[0].marks.x, one.lines[0].marks.mid],
    [
      [0, 1, 2, 3],
      [1, 2, 3, 4],
    ],
  );
});

test("a new rank has a line of its own where each has one, and none where another is shown", () => {
  const each = entry(line(0));
  assert.equal(lineFor(each, { ...HOW, ranks: "each" }, 2).name, "rank 2");
  assert.equal(each.lines.length, 2);
  assert.equal(lineFor(entry(line(0)), { ...HOW, ranks: 0 }, 2), null);
});

test("a mark of many steps is narrowed down to the step with the value", async () => {
  const asked = [];
  globalThis.fetch = async (url) => {
    const query = new URL(url, "http://hub").searchParams;
    asked.push([query.get("from"), query.get("to")]);
    const wide = { shape: "buckets", total: 9, columns: { x: [0, 50], x_last: [49, 99], min: [1, 1], max: [2, 90] } };
    const raw = { shape: "raw", total: 2, columns: { value: [1, 90], step: [60, 61], rank: [0, 3] } };
    return Response.json({ series: [asked.length === 1 ? wide : raw] });
  };
  assert.deepEqual(await resolve("run", "loss", { from: 0, to: 99 }, 90), { step: 61, rank: 3 });
  assert.deepEqual(asked, [
    ["0", "99"],
    ["50", "99"],
  ]);
});

test("marks stay few however many points are appended, and none of the extremes is lost", () => {
  const many = new Marks(500),
    odd = { 77777: 99, 123456: NaN };
  for (let step = 0; step < 200000; step++) many.add(step, odd[step] ?? Math.sin(step), step % 4);
  const at = many.high.indexOf(99),
    flagged = many.flags.findIndex((flag) => flag === 1);
  assert.ok(many.length <= 1000);
  assert.equal(many.total, 200000);
  assert.equal(
    many.good.reduce((a, b) => a + b),
    199999,
  );
  assert.ok(many.x[at] <= 77777 && 77777 <= many.last[at]);
  assert.equal(many.highRank[at], 1);
  assert.ok(many.x[flagged] <= 123456 && 123456 <= many.last[flagged]);
});

test("points that come late find their place in the order of x", () => {
  const late = new Marks(500);
  for (const step of [5, 1, 3, 2, 4, 3]) late.add(step, step * 10 + (late.total === 5 ? 5 : 0));
  assert.deepEqual([...late.x], [1, 2, 3, 4, 5]);
  assert.deepEqual([...late.mid], [10, 20, 32.5, 40, 50]);
});

test("the mean of the largest numbers is a number", () => {
  const largest = new Marks(500);
  for (const value of [1.7e308, 1.6e308, 1.5e308]) largest.add(1, value, 0);
  assert.ok(Math.abs(largest.mid[0] / 1.6e308 - 1) < 1e-6);
});

test("ticks near a million have the digits that tell them apart; far apart they are short", () => {
  const written = (...ticks) => tickX("step")(null, ticks).map((text) => text.replaceAll(/,(?=\d{3}\b)/g, ""));
  assert.deepEqual(written(1e6, 1e6 + 5, 1e6 + 10), ["1000000", "1000005", "1000010"]);
  assert.deepEqual(written(1e6, 1e6 + 500, 1e6 + 1000), ["1M", "1.0005M", "1.001M"]);
  assert.deepEqual(written(0, 5e5, 1e6), ["0", "500k", "1M"]);
});
