import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { escapeInvisible } from "../parts/invisible.js";

test("what cannot be seen is escaped as in the terminal", () => {
  for (const [given, shown] of JSON.parse(readFileSync(new URL("./invisible.json", import.meta.url))))
    assert.equal(escapeInvisible(given), shown);
});
