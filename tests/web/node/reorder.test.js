// The order of cards: lists with an item moved, and the YAML of a dashboard in which a chart is moved with its comments.
import assert from "node:assert/strict";
import { test } from "node:test";
import { moved } from "../parts/reorder.js";
import { withMoved } from "../parts/yaml_list.js";
import { grouped } from "../run/charts.js";

test("an item moves to another place, the others keep their order", () => {
  assert.deepEqual(moved(["a", "b", "c", "d"], 0, 2), ["b", "c", "a", "d"]);
  assert.deepEqual(moved(["a", "b", "c", "d"], 3, 0), ["d", "a", "b", "c"]);
  assert.deepEqual(moved(["a"], 0, 0), ["a"]);
});

test("a chart moves in the text with its lines and the comment before it; the rest stays", () => {
  const text =
    "title: T\ncharts:\n  - title: A\n    keys: [a]\n\n  # why B\n  - title: B\n    text: |\n      - not an item\n    keys: [b]\nx: time\n";
  assert.equal(
    withMoved(text, "charts", 2, 1, 0),
    "title: T\ncharts:\n\n  # why B\n  - title: B\n    text: |\n      - not an item\n    keys: [b]\n  - title: A\n    keys: [a]\nx: time\n",
  );
  assert.equal(
    withMoved("charts:\n- keys: [a]\n- keys: [b]\n", "charts", 2, 0, 1),
    "charts:\n- keys: [b]\n- keys: [a]\n",
  );
});

test("a list that is not written in lines is left alone", () => {
  assert.equal(withMoved("charts: [{keys: [a]}, {keys: [b]}]\n", "charts", 2, 0, 1), null);
  assert.equal(withMoved("charts:\n  - keys: [a]\n", "charts", 2, 0, 1), null);
  assert.equal(withMoved("title: T\n", "charts", 0, 0, 1), null);
});

test("pinned charts have the order in which they are pinned", () => {
  const keys = ["a", "b", "c"].map((key) => ({ key, category: null }));
  const [[name, list]] = grouped(keys, ["c", "gone", "a"]);
  assert.deepEqual([name, list.map(({ key }) => key)], ["pinned", ["c", "a"]]);
});
