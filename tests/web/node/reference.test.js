// The page of the API: the parts that a schema names stand in their places, and a value that may be null says so.
import assert from "node:assert/strict";
import { test } from "node:test";
import { inlined, shapeOf } from "../reference/examples.js";
import { endpointsOf } from "../reference/view.js";

const place = "#/components/schemas/";
const schemas = {
  Page: {
    type: "object",
    properties: {
      runs: { type: "array", items: { $ref: place + "Run" } },
      last: { anyOf: [{ $ref: place + "Run" }, { type: "null" }] },
    },
    required: ["runs"],
  },
  Run: { type: "object", properties: { id: { type: "string" } }, required: ["id"] },
};

test("the shape of an answer shows its parts", () => {
  const shape = shapeOf(inlined({ $ref: place + "Page" }, schemas));
  assert.equal(shape, "{\n  runs: [{\n    id: string\n  }]\n  last?: {\n    id: string\n  } | null\n}");
});

test("what stands beside a reference counts too", () => {
  assert.equal(inlined({ $ref: place + "Run", minProperties: 1 }, schemas).minProperties, 1);
});

test("an endpoint has its answer in place", () => {
  const answer = { content: { "application/json": { schema: { $ref: place + "Run" } } } };
  const paths = { "/api/run": { get: { operationId: "run", summary: "A run.", responses: { 200: answer } } } };
  const [endpoint] = endpointsOf({ paths, components: { schemas } });
  assert.deepEqual(endpoint.operation.responses[200].content["application/json"].schema, schemas.Run);
});
