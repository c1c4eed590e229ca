import assert from "node:assert/strict";
import test from "node:test";
import { deleting, fetchPresent } from "../deleting.js";

// A hub whose answers are given by the test: each request waits in `sent`.
const sent = [];
globalThis.fetch = (url, { signal } = {}) =>
  new Promise((answer, fail) => {
    signal?.addEventListener("abort", () => fail(new DOMException("aborted", "AbortError")));
    sent.push({ url, answer, aborted: () => signal?.aborted });
  });
const settled = () => new Promise((done) => setTimeout(done));

test("a deleted run is not asked for, whatever was on its way", async () => {
  sent.length = 0;
  const about = ["api/runs/gone", "api/runs/gone/keys?x=1", "api/logs?run=gone&limit=5"].map((url) =>
    fetchPresent(url).then(String, (error) => error.name),
  );
  const others = [fetchPresent("api/runs/here"), fetchPresent("api/sparks?run=gone&run=here")];
  await settled();
  let done;
  const deletion = deleting("gone", () => new Promise((answer) => (done = answer)));
  const during = fetchPresent("api/runs/gone/series").then(String, (error) => error.name);
  await settled();
  assert.deepEqual(
    sent.filter((each) => each.aborted()).map(({ url }) => url),
    ["api/runs/gone", "api/runs/gone/keys?x=1", "api/logs?run=gone&limit=5"],
  );
  done("freed");
  assert.equal(await deletion, "freed");
  const after = await fetchPresent("api/runs/gone").then(String, (error) => error.name);
  assert.deepEqual([...(await Promise.all(about)), await during, after], Array(5).fill("AbortError"));
  assert.equal(sent.length, 5);
  for (const each of sent) each.answer("answer");
  assert.deepEqual(await Promise.all(others), ["answer", "answer"]);
});

test("a run that the hub keeps is asked for again", async () => {
  sent.length = 0;
  const before = fetchPresent("api/runs/kept/keys");
  await settled();
  await assert.rejects(deleting("kept", () => Promise.reject(new Error("still running"))));
  await settled();
  assert.equal(sent.length, 2);
  sent[1].answer("keys");
  assert.equal(await before, "keys");
});

test("a view that closes cancels its own request", async () => {
  sent.length = 0;
  const control = new AbortController(),
    closed = fetchPresent("api/runs/other", { signal: control.signal }).then(String, (error) => error.name);
  await settled();
  control.abort();
  assert.equal(await closed, "AbortError");
  assert.ok(sent[0].aborted());
});
