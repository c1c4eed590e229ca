// Numbers, sizes, durations and times as people read them. model/formatting.py writes the same texts for the terminal and reports.
import { spelled } from "./exact.js";

const MISSING = "–";
const WORDS = { NaN, Infinity, "-Infinity": -Infinity };
const FULL = 1e6,
  SMALLEST = 1e-3; // outside of these numbers have an exponent
const COUNTS = ["", "k", "M", "G", "T", "P", "E"],
  BYTES = [" B", " kB", " MB", " GB", " TB", " PB", " EB"];
const BRIEF = 10000,
  BRIEF_DIGITS = 5,
  DAY = 86400;
const BYTE_UNITS = ["By", "B", "bytes", "byte"];

/**
 * @param {any} value
 * @returns {value is null | undefined}
 */
function absent(value) {
  return value === null || value === undefined;
}

/**
 * A number with some significant digits: 0.5, 12,345, 7.68e10, 3e-4, NaN, Inf. Whole numbers below a million keep all digits.
 * JSON's words for what is not finite are understood.
 * @param {unknown} given
 * @param {number} [digits]
 */
export function number(given, digits = 4) {
  if (absent(given)) return MISSING;
  if (typeof given === "string" && !(given in WORDS)) return given;
  const value = Number(typeof given === "string" ? WORDS[given] : given);
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "Inf" : "-Inf";
  if (value === 0) return "0";
  if (Number.isInteger(value) && Math.abs(value) < FULL) return grouped(value);
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e"),
    power = Number(exponent);
  const rounded = Math.abs(Number(`${mantissa}e${exponent}`));
  if (rounded >= FULL || rounded < SMALLEST) return `${short(mantissa)}e${power}`;
  return grouped(short(value.toFixed(Math.max(digits - 1 - power, 0))));
}

const short = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
const grouped = (value) => {
  const [whole, ...rest] = String(value).split(".");
  return [whole.replace(/\B(?=(\d{3})+$)/g, ","), ...rest].join(".");
};

/**
 * A difference: a number with its sign.
 * @param {unknown} value
 * @param {number} [digits]
 */
export function signed(value, digits = 4) {
  const text = number(value, digits);
  return typeof value === "number" && value > 0 ? "+" + text : text;
}

/**
 * How many there are: 1,234,567 in full, or short as 1.23M.
 * @param {number | null | undefined} value
 * @param {{ brief?: boolean, digits?: number }} [how]
 */
export function count(value, { brief = false, digits = 3 } = {}) {
  if (absent(value)) return MISSING;
  if (!brief) return grouped(value);
  return Math.abs(value) < BRIEF ? number(value, digits) : scaled(value, COUNTS, digits);
}

/** How many things there are, in words: "1 run", "3 runs". */
export const counted = (n, thing = "run") => `${count(n)} ${thing}${n === 1 ? "" : "s"}`;

/**
 * A number that names something (a step, a rank, a process): as commands and addresses take it.
 * @param {number | null | undefined} value
 */
export const ordinal = (value) => (absent(value) ? MISSING : String(value));

/**
 * Bytes in powers of ten: 999 B, 1.5 kB, 80 GB.
 * @param {number | null | undefined} value
 * @param {number} [digits]
 */
export const bytes = (value, digits = 3) => (absent(value) ? MISSING : scaled(value, BYTES, digits));

// A number in the first unit in which it is below a thousand once rounded, else in the last.
function scaled(value, units, digits) {
  if (!Number.isFinite(value)) return number(value);
  let at = 0;
  while (at < units.length - 1 && Math.abs(Number((value / 1000 ** at).toPrecision(digits))) >= 1000) at++;
  return number(value / 1000 ** at, digits) + units[at];
}

/** @type {[number, string, number][]} How many of a unit a second is, its name, and up to how many of it are written. */
const SHORT = [
  [1e9, "ns", 1000],
  [1e6, "µs", 1000],
  [1e3, "ms", 1000],
  [1, "s", 60],
];

/**
 * How long something took, in seconds: 12.3 ms, 59.5 s, 5m 06s, 3h 04m, 2d 03h.
 * @param {number | null | undefined} seconds
 * @returns {string}
 */
export function lasting(seconds) {
  if (absent(seconds) || !Number.isFinite(seconds)) return number(seconds);
  if (seconds < 0) return "-" + lasting(-seconds);
  if (seconds === 0) return "0 s";
  for (const [factor, unit, limit] of SHORT) {
    if (Number((seconds * factor).toPrecision(3)) < limit) return `${number(seconds * factor, 3)} ${unit}`;
  }
  if (seconds >= 10000 * DAY) return `${number(seconds / DAY)} d`;
  const s = Math.floor(seconds + 0.5);
  if (s < 3600) return `${Math.floor(s / 60)}m ${two(s % 60)}s`;
  if (s < DAY) return `${Math.floor(s / 3600)}h ${two(Math.floor(s / 60) % 60)}m`;
  return `${Math.floor(s / DAY)}d ${two(Math.floor(s / 3600) % 24)}h`;
}

/**
 * The same of milliseconds.
 * @param {number | null | undefined} ms
 */
export const millis = (ms) => lasting(absent(ms) ? ms : ms / 1000);

/**
 * How many times the usual something is: ×1.5, ×140.
 * @param {number | null | undefined} value
 */
export const ratio = (value) => (absent(value) ? "" : "×" + number(value, 2));

/**
 * A share of one: 12.5 %.
 * @param {number | null | undefined} share
 */
export function percent(share) {
  if (absent(share)) return MISSING;
  return share > 0 && share < 0.001 ? "< 0.1 %" : `${number(100 * share, 3)} %`;
}

/**
 * The value of a metric: bytes as sizes, where its unit or the end of its name says that it is bytes.
 * @param {unknown} value
 * @param {string} [key]
 * @param {string} [unit]
 * @param {number} [digits]
 */
export function quantity(value, key = "", unit = "", digits = 4) {
  const per = bytesOf(key, unit);
  return per === null || typeof value !== "number" || !Number.isFinite(value)
    ? number(value, digits)
    : bytes(value) + per;
}

/**
 * Whether a metric is bytes: "" for an amount, "/s" for a rate, null for anything else.
 * @param {string} key
 * @param {string} unit
 * @returns {string | null}
 */
export function bytesOf(key, unit) {
  const [plain, per] = unit.split(/\/(.*)/s);
  if (BYTE_UNITS.includes(plain)) return per ? "/" + per : "";
  if (unit) return null;
  return key.endsWith("_bytes") ? "" : key.endsWith("_bytes_per_second") ? "/s" : null;
}

/**
 * The texts of an axis' ticks: as few digits as tell them apart. `write(value, digits)` writes one.
 * @param {(number | null)[]} values
 * @param {(value: number, digits: number) => string} [write]
 */
export function ticks(values, write = number) {
  const known = values.filter((value) => !absent(value)),
    many = new Set(known).size;
  let texts = [];
  for (let digits = 3; digits <= 17; digits++) {
    texts = values.map((value) => (absent(value) ? "" : write(value, digits)));
    if (new Set(texts.filter(Boolean)).size >= many) break;
  }
  return texts;
}

/**
 * The ticks of steps: short while that tells them apart, else in full.
 * @param {(number | null)[]} values
 */
export function stepTicks(values) {
  return ticks(values, (value, digits) =>
    digits > BRIEF_DIGITS ? count(value) : count(value, { brief: true, digits }),
  );
}

/**
 * How long ago something was, in its largest unit.
 * @param {number | null | undefined} time
 * @param {number} [now]
 */
export function ago(time, now = Date.now() / 1000) {
  if (!time) return MISSING;
  const s = now - time;
  return s < 3 ? "now" : s < 60 ? `${Math.round(s)} s ago` : lasting(s).split(" ")[0] + " ago";
}

const two = (n) => String(n).padStart(2, "0");

/**
 * A moment in local time: 14:03:21, with the date when it is not today; `exact` adds milliseconds and the date.
 * @param {number | null | undefined} time
 * @param {{ exact?: boolean }} [how]
 */
export function clock(time, { exact = false } = {}) {
  if (!time) return MISSING;
  const at = new Date(time * 1000);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const hour = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  if (exact) return `${day} ${hour}.${String(at.getMilliseconds()).padStart(3, "0")}`;
  return at.toDateString() === new Date().toDateString() ? hour : `${day} ${hour.slice(0, 5)}`;
}

// Any setting or attribute as text, to the last digit: what was written, not a reading of it.
export const plain = (value) => (value === null || value === undefined ? MISSING : spelled(value));

// A number that JSON spelled as a word, as a number again.
export const real = (value) => (typeof value === "string" ? Number(value) : value);

/**
 * Nested settings as [path, value], the paths joined by dots.
 * @param {Record<string, any> | null | undefined} settings
 * @param {string} [prefix]
 * @returns {[string, any][]}
 */
export function flat(settings, prefix = "") {
  return Object.entries(settings || {}).flatMap(([key, value]) =>
    value && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length
      ? flat(value, prefix + key + ".")
      : [[prefix + key, value]],
  );
}
