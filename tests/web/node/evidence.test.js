import assert from "node:assert/strict";
import test from "node:test";
import { foldStacks, rankWords, someRanks, tookByRank } from "../run/rank_evidence.js";
import { withItem } from "../parts/yaml_list.js";
import { reducedOf } from "../runs/reduced.js";
import { correlation, importance, labelled, ranked, scaleOf, valueOf, varying } from "../workspace/relations.js";

test("equal stacks are one group, and the odd one out comes first with the lines that differ", () => {
  const waiting = "train.py:1 main\ntrain.py:9 step\ndist.py:5 all_reduce";
  const reports = [0, 1, 3].map((rank) => ({
    rank,
    stack: waiting,
    seconds: 30 + rank,
    collective: { name: "all_reduce" },
  }));
  const [odd, usual] = foldStacks([...reports, { rank: 2, stack: "train.py:1 main\nload.py:7 read", seconds: 31 }]);
  assert.deepEqual([odd.ranks, odd.odd, odd.from], [[2], true, 1]);
  assert.deepEqual([usual.ranks, usual.odd, usual.seconds], [[0, 1, 3], false, 33]);
  assert.deepEqual(
    foldStacks([
      { rank: 0, stack: "a" },
      { rank: 1, stack: "b" },
    ]).map(({ odd: is }) => is),
    [false, false],
  );
});

test("ranks are written in runs", () => {
  assert.equal(rankWords([3]), "rank 3");
  assert.equal(rankWords([0, 1, 2, 5, 7, 8]), "ranks 0–2, 5, 7, 8");
});

test("the time of each rank is summed, and of many ranks the blamed and the extremes are drawn", () => {
  const spans = Array.from({ length: 100 }, (_, rank) => ({ rank, duration_ms: rank === 50 ? null : 1 + rank / 100 }));
  const rows = tookByRank([...spans, { rank: 7, duration_ms: 10 }]);
  assert.deepEqual([rows[0].rank, rows.at(-1)?.rank], [7, 50]);
  const shown = someRanks(rows, [42]);
  assert.ok(shown.some(({ rank }) => rank === 42) && shown.length === 25);
});

test("columns that are computed from points are told from others", () => {
  assert.deepEqual(reducedOf("last10.val/loss"), { key: "val/loss", steps: 10, by: "", other: "" });
  assert.deepEqual(reducedOf("metrics.acc@best.val/loss"), { key: "acc", steps: 0, by: "best", other: "val/loss" });
  for (const other of [
    "metrics.recall@5",
    "metrics.loss",
    "best.loss",
    "config.last10.x",
    "metrics.@best.a",
    "metrics.a@best.",
    "last1234567890.a",
    "last5.",
  ])
    assert.equal(reducedOf(other), null, other);
});

const sweep = Array.from({ length: 24 }, (_, at) => ({
  config: {
    lr: [1e-4, 1e-3, 1e-2, 1e-1][at % 4],
    opt: { name: at % 2 ? "adam" : "sgd" },
    seed: (at * 7) % 24,
    depth: 2,
  },
  values: { loss: { value: 3 - (at % 4) + at / 1000, best: 2 - (at % 4) } },
  columns: { "last5.loss": { value: at } },
  duration: 10,
}));

test("fields of runs are read as numbers where they are", () => {
  assert.deepEqual(
    ["config.lr", "config.opt.name", "best.loss", "last5.loss", "duration", "config.no"].map((field) =>
      valueOf(sweep[1], field),
    ),
    [1e-3, "adam", 1, 1, 10, undefined],
  );
  assert.deepEqual(varying(sweep), ["lr", "opt.name", "seed"]);
});

test("a setting that decides the result explains most of it, and a seed nothing", () => {
  const { runs, rows } = importance(sweep, ["lr", "opt.name", "seed"], "best.loss");
  assert.equal(runs, 24);
  assert.equal(rows[0].path, "lr");
  assert.ok(rows[0].share > 0.95 && (rows[0].sign ?? 0) < -0.95);
  assert.ok((rows.find(({ path }) => path === "seed")?.share ?? 1) < 0.2);
  assert.deepEqual(ranked([5, 1, 5]), [1.5, 0, 1.5]);
  assert.ok(Math.abs(correlation([1, 2, 3], [3, 2, 1]) + 1) < 1e-12);
});

test("axes are logarithmic over two decades, and texts have places beside each other", () => {
  const scale = scaleOf([1e-4, 1e-1, 1e-3]);
  assert.ok(scale.log && Math.abs(scale.at(1e-2) - 2 / 3) < 1e-9);
  assert.equal(scaleOf([1, 3]).at(2), 0.5);
  assert.deepEqual(["b", "a", "c"].map(scaleOf(["c", "a", "b", undefined]).at), [0.5, 0, 1]);
  assert.equal(scaleOf([4, 4]).at(4), 0.5);
});

test("ticks that lie too close have no label, and the ends have theirs", () => {
  assert.deepEqual(labelled([300, 299, 295, 200, 191, 14], 13), [0, 3, 5]);
  assert.deepEqual([labelled([], 13), labelled([7], 13), labelled([7, 8], 13)], [[], [0], [0]]);
});

test("an item is added to a list of YAML as the others are written, and the rest stays", () => {
  const fields = /** @type {[string, any][]} */ ([
    ["title", 'a "b"'],
    ["scale", undefined],
    ["keys", ["x/y"]],
  ]);
  const item = (indent) => `${indent}- title: "a \\"b\\""\n${indent}  keys: ["x/y"]\n`;
  assert.equal(withItem("", "charts", fields), "charts:\n" + item("  "));
  assert.equal(withItem("title: T\ncharts: []\n", "charts", fields), "title: T\ncharts:\n" + item("  "));
  const before = "# mine\ncharts:\n- keys: [a]\n  wide: true\n";
  assert.equal(withItem(before, "charts", fields), before + item(""));
  const middle = "rules:\n    - name: a\n\n# after\nfor_all: 1\n";
  assert.equal(withItem(middle, "rules", fields), "rules:\n    - name: a\n" + item("    ") + "\n# after\nfor_all: 1\n");
});
