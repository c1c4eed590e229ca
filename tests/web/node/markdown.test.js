import assert from "node:assert/strict";
import test from "node:test";
import { blocksOf } from "../parts/markdown.js";
import { chartOf } from "../run/notes.js";

test("a text is divided into its blocks, and nothing in it is lost", () => {
  const text = "# Title\nwords\nmore\n\n- a\n- b\n1. c\n> said\n```chart\ntrain/loss\n```\n```\nopen to the end\n# no";
  assert.deepEqual(
    blocksOf(text).map(({ kind, lines, level, word }) => [kind, lines, level ?? word]),
    [
      ["heading", ["Title"], 1],
      ["text", ["words", "more"], undefined],
      ["items", ["a", "b"], undefined],
      ["numbers", ["c"], undefined],
      ["quote", ["said"], undefined],
      ["code", ["train/loss"], "chart"],
      ["code", ["open to the end", "# no"], ""],
    ],
  );
});

test("a chart has metrics and, if it names them, other runs, of which twenty are drawn", () => {
  assert.deepEqual(chartOf([" train/loss ", "", "lr", "runs: a, b,a,"]), {
    keys: ["train/loss", "lr"],
    runs: ["a", "b"],
    where: "",
  });
  assert.deepEqual(chartOf(["k", "where: project = p and tag = a"]), {
    keys: ["k"],
    runs: [],
    where: "project = p and tag = a",
  });
  assert.equal(chartOf(["k", "runs: " + Array.from({ length: 99 }, (_, at) => `r${at}`).join()]).runs.length, 20);
});

test("a long hostile text takes no longer than its length", () => {
  const began = performance.now();
  for (const piece of ["[", "*", "**a", "`", "> ", "- ", "```x\n", "#", "[a](", "http://"])
    blocksOf(piece.repeat(20000));
  assert.ok(performance.now() - began < 5000);
});
