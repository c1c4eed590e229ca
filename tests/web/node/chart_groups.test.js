// Charts of a run in groups: by category, by the first parts of dotted names that several share, else under other.
import assert from "node:assert/strict";
import { test } from "node:test";
import { grouped } from "../run/charts.js";

const keyed = (key) => ({ key, category: key.includes("/") ? key.slice(0, key.indexOf("/")) : null });
const names = (keys, pins = []) =>
  grouped(keys.map(keyed), pins).map(([name, list]) => [name, list.map((each) => each.key)]);

test("dotted names that share their first parts are a group, the one with the loss first", () => {
  const keys = [
    "signal.rl.kl",
    "signal.rl.entropy",
    "signal.training.lr",
    "signal.training.loss",
    "queue.depth",
    "loose",
  ];
  assert.deepEqual(names(keys), [
    ["signal.training", ["signal.training.loss", "signal.training.lr"]],
    ["signal.rl", ["signal.rl.entropy", "signal.rl.kl"]],
    ["other", ["loose", "queue.depth"]],
  ]);
});

test("a category stays a group, and what is pinned stands in front", () => {
  assert.deepEqual(names(["trainer/loss", "trainer/a.b.c", "x"], ["x"]), [
    ["pinned", ["x"]],
    ["trainer", ["trainer/loss", "trainer/a.b.c"]],
  ]);
});

test("a loss without a prefix is not below the parts of the model", () => {
  const names = (list) => grouped(list, []).map(([name]) => name);
  const layers = ["layer00/norm", "layer01/norm"].map((key) => ({ key, category: key.split("/")[0] }));
  assert.equal(names([...layers, { key: "loss", category: null }])[0], "other");
  assert.equal(names([...layers, { key: "lr", category: null }]).at(-1), "other");
});
