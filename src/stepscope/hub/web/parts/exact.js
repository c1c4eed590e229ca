// Numbers to the last digit: JSON parsed without rounding user-supplied numbers, and values written as the hub stores them.
// A number that a double cannot hold, or that was written otherwise than JavaScript would; it counts as its nearest double.
export class Exact extends Number {
  #text;
  constructor(text) {
    super(text);
    this.#text = text;
  }
  get whole() {
    return /^-?\d+$/.test(this.#text);
  }
  /** @override */
  toString() {
    return this.whole ? this.#text : pythonic(Number(this.#text));
  }
  toJSON() {
    return JSON.rawJSON ? JSON.rawJSON(this.#text) : this.toString();
  }
}

// Values below these names are user-supplied; everything else stays a plain number.
const ALL = (number) => number,
  WHOLE = (number) => (number.whole ? number : number.valueOf()),
  NONE = (number) => number.valueOf();
const REPLACE = new Map([
  ["attrs", ALL],
  ["config", ALL],
  ["tags", ALL],
  ["shared", ALL],
  ["environment", ALL],
  ["resource", ALL],
  ["body", ALL],
  ["rows", WHOLE],
  ["values", NONE],
  ["points", NONE],
]);
const SUSPECT = /[:,[]\s*-?(?:\d{16}|\d+\.0\s*[,\]}]|\d+(?:\.\d+)?[eE])/;
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const MARK = "\u0001";

// JSON as a value; user-supplied numbers that would lose digits are `Exact`.
export function readExactly(text) {
  if (!SUSPECT.test(text)) return JSON.parse(text);
  const marked = text.replace(TOKENS, (token) =>
    token[0] === '"'
      ? token.startsWith('"\\u0001')
        ? `"\\u0001${token.slice(1)}`
        : token
      : String(Number(token)) === token
        ? token
        : `"\\u0001${token}"`,
  );
  return replaced(
    JSON.parse(marked, (_, value) =>
      typeof value !== "string" || value[0] !== MARK
        ? value
        : value[1] === MARK
          ? value.slice(1)
          : new Exact(value.slice(1)),
    ),
  );
}

/**
 * @param {any} value
 * @param {((number: any) => any) | null} [replace]
 */
function replaced(value, replace = null) {
  if (value instanceof Exact) return (replace ?? NONE)(value);
  if (value === null || typeof value !== "object") return value;
  for (const key of Object.keys(value)) value[key] = replaced(value[key], replace ?? REPLACE.get(key) ?? null);
  return value;
}

// Any value as the hub's store spells it, which is what attributes are searched by: numbers as Python writes them.
export function spelled(value) {
  if (typeof value === "string") return value;
  return inside(value);
}

function inside(value) {
  if (value instanceof Exact) return value.toString();
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : pythonic(value);
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(inside).join(",")}]`;
  return `{${Object.entries(value)
    .map(([key, each]) => `${JSON.stringify(key)}:${inside(each)}`)
    .join(",")}}`;
}

// A float as Python writes it: 64.0, 0.0003, 1e-05, 1e+16.
function pythonic(value) {
  if (!Number.isFinite(value)) return String(value);
  const [digits, power] = value.toExponential().split("e"),
    size = Number(power);
  if (size < -4 || size >= 16) return `${digits}e${size < 0 ? "-" : "+"}${String(Math.abs(size)).padStart(2, "0")}`;
  const text = Object.is(value, -0) ? "-0" : String(value);
  return text.includes(".") ? text : text + ".0";
}
