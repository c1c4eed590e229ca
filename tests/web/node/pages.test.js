import assert from "node:assert/strict";
import test from "node:test";
import { startingAgain } from "../run/overview.js";
import { address, quoted, runPath } from "../api.js";
import { Exact, readExactly, spelled } from "../parts/exact.js";
import { href, parse } from "../router.js";
import { bytes, count, lasting, number } from "../parts/format.js";
import { fitting } from "../runs/columns.js";
import { matching } from "../dashboards/sources.js";
import { complete } from "../runs/filter.js";
import { moved, ticks, whole, zoomed } from "../trace/model.js";

test("addresses of the API repeat lists and leave out what is absent", () => {
  assert.equal(address("runs", { metric: ["a", "b"], filter: "", cursor: null }), "api/runs?metric=a&metric=b");
  assert.equal(runPath("a/b", "steps", 3), "runs/a%2Fb/steps/3");
  assert.deepEqual([quoted("plain-1"), quoted("two words")], ["plain-1", '"two words"']);
});

test("numbers, bytes and durations are written alike everywhere", () => {
  assert.deepEqual(
    [number(7.68e10), number("NaN"), count(12345), bytes(1.5e9), lasting(0.0123)],
    ["7.68e10", "NaN", "12,345", "1.5 GB", "12.3 ms"],
  );
});

test("integers beyond doubles keep their digits", () => {
  const read = readExactly('{"config": {"seed": 12345678901234567890}}');
  assert.equal(spelled(read.config.seed), "12345678901234567890");
});

test("what people wrote keeps its digits, also in text that looks like ours; what we count with stays a number", () => {
  const attrs =
    '"a": 64.0, "b": 64, "c": 1e-5, "d": 1e16, "e": 123456789012345678901, "f": -0.0, ' +
    '"g": [1.0, "1.0", {"config": 9007199254740993}], "h": "\\u000112", "i": "say \\"1.0\\", 2.0", "j": null';
  const rest = '"time": 1790000000.0, "values": {"config": {"value": 64.0}}, "rows": [[18446744073709551615, 2.0, 5]]';
  const read = readExactly(`{"attrs": {${attrs}}, ${rest}}`);
  assert.deepEqual(Object.values(read.attrs).map(spelled), [
    ...["64.0", "64", "1e-05", "1e+16", "123456789012345678901", "-0.0"],
    ...['[1.0,"1.0",{"config":9007199254740993}]', "\u000112", 'say "1.0", 2.0', "null"],
  ]);
  assert.deepEqual([typeof read.time, typeof read.values.config.value, read.attrs.a + 1], ["number", "number", 65]);
  assert.deepEqual(read.rows[0].map(String), ["18446744073709551615", "2", "5"]);
  assert.deepEqual(
    read.rows[0].map((cell) => cell instanceof Exact),
    [true, false, false],
  );
});

test("a filter is completed by fields, operators and values", () => {
  const fields = [
    { name: "status", hint: "" },
    { name: "step", hint: "" },
  ];
  const offered = (text) => complete(text, text.length, fields, () => ["running"]).options.map((each) => each.text);
  assert.deepEqual(offered("st"), ["status", "step"]);
  assert.ok(offered("status ").includes("="));
  assert.ok(offered("status = run").includes("running"));
});

test("as many tags are shown as fit, and at least one", () => {
  assert.deepEqual(
    [fitting([], 16), fitting(["a", "smoke", "dataset=c4"], 16), fitting(["w".repeat(60), "a"], 16)],
    [0, 2, 1],
  );
});

test("the visible range of a trace stays within it", () => {
  const trace = { total: 100 };
  assert.deepEqual(whole(trace), { from: 0, to: 100 });
  assert.deepEqual(moved({ from: 10, to: 20 }, -50, 100), { from: 0, to: 10 });
  const view = zoomed({ from: 0, to: 100 }, 0.5, 50, 100);
  assert.deepEqual(view, { from: 25, to: 75 });
  assert.ok(ticks(view, 800).every(({ text }) => text.endsWith("ms")));
  assert.deepEqual(
    ticks({ from: 0, to: 226 }, 200).map(({ text }) => text),
    ["0", ""],
  );
});

test("addresses of views are written and read alike", () => {
  const text = href("run", "a/b", { step: 3, log: true, q: "", x: null, tag: ["a", "b"] });
  const { name, parts, query } = parse(text);
  assert.equal(text, "#/run/a%2Fb?step=3&log=1&tag=a&tag=b");
  assert.deepEqual([name, parts, query.get("step"), query.getAll("tag")], ["run", ["a/b"], "3", ["a", "b"]]);
});

test("the addresses that MLflow's clients print lead to the run, or to all runs", () => {
  const read = (text) => [parse(text).name, parse(text).parts];
  assert.deepEqual(read("#/experiments/0/runs/8c0f?x=time"), ["run", ["8c0f"]]);
  assert.deepEqual(read("#/experiments/12"), ["runs", []]);
});

test("a dashboard finds a metric in any spelling of its category", () => {
  const names = ["train/loss", "trainer/lr", "eval/loss", "loss"];
  assert.deepEqual(matching(["trainer/loss"], names), ["train/loss"]);
  assert.deepEqual(matching(["train/*"], names), ["train/loss", "trainer/lr"]);
  assert.deepEqual(matching(["*/loss"], names), ["train/loss", "eval/loss"]);
  assert.deepEqual(matching(["evaluator/*", "loss"], names), ["eval/loss", "loss"]);
});

test("the commands that start a run again are quoted for a shell", () => {
  assert.deepEqual(startingAgain({ argv: ["train.py", "--name", "it's; rm -rf /"], "git.commit": "c0ffee" }), [
    "git checkout c0ffee",
    "python train.py --name 'it'\\''s; rm -rf /'",
  ]);
  assert.deepEqual(startingAgain({}), []);
  assert.equal(startingAgain({ "git.remote": "https://h/r.git" })[0], "git clone https://h/r.git code && cd code");
});
