// Requests and answers of the API in words: a command line that works as it is, and the shape of JSON by its schema.

const DEEPEST = 6;
const EXAMPLES = { key: "loss", metric: "loss", name: "example", step: "100", id: "ID", trace: "0".repeat(32) };

/** What a parameter may be, in a word or two. */
export function kindOf(schema) {
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (schema.oneOf || schema.anyOf) return (schema.oneOf || schema.anyOf).map(kindOf).join(" | ");
  if (schema.type === "array") return `${kindOf(schema.items ?? {})}, repeated`;
  const type = [schema.type ?? "anything"].flat().join(" | "),
    { minimum: low, maximum: high } = schema;
  return low !== undefined && high !== undefined && high < 2 ** 53 ? `${type} from ${low} to ${high}` : type;
}

/**
 * A schema as text, in the shape of the JSON.
 * @param {any} schema
 * @returns {string}
 */
export function shapeOf(schema, indent = "", depth = 0) {
  const more = indent + "  ";
  if (!schema || depth > DEEPEST) return "…";
  if (schema.anyOf) return schema.anyOf.map((each) => shapeOf(each, indent, depth)).join(" | ");
  if (schema.properties) {
    const needed = new Set(schema.required ?? []);
    const fields = Object.entries(schema.properties).map(
      ([name, each]) => `${more}${name}${needed.has(name) ? "" : "?"}: ${shapeOf(each, more, depth + 1)}`,
    );
    return `{\n${fields.join("\n")}\n${indent}}`;
  }
  if (schema.type === "array") return `[${shapeOf(schema.items ?? {}, indent, depth + 1)}]`;
  if (schema.additionalProperties && typeof schema.additionalProperties === "object")
    return `{ NAME: ${shapeOf(schema.additionalProperties, indent, depth + 1)} }`;
  return kindOf(schema);
}

/**
 * A schema with the parts that it names in their places.
 * @param {any} schema
 * @param {Record<string, any>} parts
 * @returns {any}
 */
export function inlined(schema, parts) {
  if (Array.isArray(schema)) return schema.map((each) => inlined(each, parts));
  if (!schema || typeof schema !== "object") return schema;
  const { $ref, ...own } = schema;
  const all = $ref ? { ...parts[$ref.split("/").at(-1)], ...own } : own;
  return Object.fromEntries(Object.entries(all).map(([name, each]) => [name, inlined(each, parts)]));
}

/** A value that fits a schema. */
export function valueFor(schema, name = "") {
  if (schema.enum) return schema.enum[0];
  if (schema.oneOf || schema.anyOf) return valueFor((schema.oneOf || schema.anyOf)[0], name);
  const type = [schema.type].flat()[0];
  if (schema.properties) {
    const needed = schema.required?.length ? schema.required : Object.keys(schema.properties).slice(0, 1);
    return Object.fromEntries(needed.map((each) => [each, valueFor(schema.properties[each], each)]));
  }
  if (type === "array") return schema.items ? [valueFor(schema.items, name)] : [];
  if (type === "integer" || type === "number") return schema.minimum > 0 ? schema.minimum : 1;
  if (type === "boolean") return true;
  return type === "object" ? {} : name === "statement" || name === "sql" ? "SELECT 1" : (EXAMPLES[name] ?? "TEXT");
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** A command line for an endpoint: with the id of a run that exists, and the parameters that it needs. */
export function curlOf({ path, method, operation }, { origin, run, token }) {
  const sample = ({ name, schema }) =>
    name === "run" && run ? run : (EXAMPLES[name] ?? String(valueFor(schema, name)));
  const params = operation.parameters ?? [];
  const filled = path.replace(/\{(\w+)\}/g, (_, name) =>
    encodeURIComponent(sample(params.find((each) => each.name === name) ?? { name, schema: {} })),
  );
  const query = params
    .filter((each) => each.in === "query" && each.required)
    .map((each) => `${each.name}=${encodeURIComponent(sample(each))}`)
    .join("&");
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  return [
    "curl -s",
    ...(method === "GET" ? [] : [`-X ${method}`]),
    ...(token ? ['-H "Authorization: Bearer $STEPSCOPE_TOKEN"'] : []),
    ...(body ? ["-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(valueFor(body)))}`] : []),
    quoted(origin + filled + (query ? "?" + query : "")),
  ].join(" ");
}
