// Numbers, times and sizes as people read them. Narrow no-break spaces keep figures and units together.
import { spelled } from "./exact.js";

const THIN = "\u202f";

// A value of a metric: "NaN" and the infinities come as words.
export function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value === "Infinity" ? "+∞" : value === "-Infinity" ? "−∞" : value;
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "+∞" : "−∞";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (Number.isInteger(value) && size < 1e6) return minus(grouped(value));
  if (size >= 1e6 || size < 1e-3) return minus(short(value.toExponential(digits - 2)));
  const text = value.toPrecision(Math.max(digits, Math.ceil(Math.log10(size))));
  return minus(text.includes("e") ? grouped(Math.round(value)) : short(text));
}

const short = (text) => text.includes(".") ? text.replace(/\.?0+(?=e|$)/, "") : text;
const minus = (text) => text.replace(/^-/, "−").replace("e-", "e−").replace("e+", "e");
export const grouped = (value) => Number(value).toLocaleString("en-US").replaceAll(",", THIN);

// A count: 1 234 567 in full, or short as 1.23M.
export function count(value, { brief = false, digits = 3 } = {}) {
  if (value === null || value === undefined) return "–";
  if (!brief || Math.abs(value) < 10000) return grouped(value);
  return inUnits(value, 1000, ["", "k", "M", "G", "T", "P"], digits).join("");
}

// A figure in the largest unit that leaves something before the point, rounded: [text, unit].
function inUnits(value, factor, units, digits = 3) {
  let at = 0, left = value;
  while (at < units.length - 1 && rounded(left, digits) >= factor) { left /= factor; at++; }
  return [Math.abs(left) >= 10 ** digits ? String(Math.round(left)) : String(Number(left.toPrecision(digits))), units[at]];
}

const rounded = (value, digits) => Math.abs(value) >= 10 ** digits ? Math.round(Math.abs(value)) : Math.abs(Number(value.toPrecision(digits)));

export function signed(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  const text = number(value, digits);
  return typeof value === "number" && value > 0 ? "+" + text : text;
}

// Milliseconds, in the unit that fits.
export function millis(ms) {
  if (ms === null || ms === undefined) return "–";
  const size = Math.abs(ms);
  if (size < 1) return number(ms * 1000, 3) + THIN + "µs";
  if (size < 1000) return number(ms, 3) + THIN + "ms";
  if (size < 60000) return number(ms / 1000, 3) + THIN + "s";
  return lasting(ms / 1000);
}

// Seconds as 1d 2h, 3h 04m, 5m 06s, 7s.
export function lasting(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.max(0, Math.round(seconds));
  const two = (n) => String(n).padStart(2, "0");
  if (s < 60) return seconds < 10 && seconds % 1 ? seconds.toFixed(1) + "s" : s + "s";
  if (s < 3600) return `${Math.floor(s / 60)}m${THIN}${two(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${THIN}${two(Math.floor(s / 60) % 60)}m`;
  return `${Math.floor(s / 86400)}d${THIN}${Math.floor(s / 3600) % 24}h`;
}

export function ago(time, now = Date.now() / 1000) {
  if (!time) return "–";
  const s = now - time;
  return s < 3 ? "now" : (s < 10 ? Math.round(s) + "s" : lasting(s).split(THIN)[0]) + " ago";
}

const two = (n) => String(n).padStart(2, "0");

// A moment in local time: 14:03:21, with the date when it is not today; `exact` adds milliseconds and the date.
export function clock(time, { exact = false } = {}) {
  if (!time) return "–";
  const at = new Date(time * 1000);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const hour = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  if (exact) return `${day} ${hour}.${String(at.getMilliseconds()).padStart(3, "0")}`;
  return at.toDateString() === new Date().toDateString() ? hour : `${day} ${hour.slice(0, 5)}`;
}

export function bytes(size) {
  if (size === null || size === undefined) return "–";
  return inUnits(size, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]).join(THIN);
}

// Any setting or attribute as text, to the last digit: what was written, not a reading of it.
export const plain = (value) => value === null || value === undefined ? "–" : spelled(value);

// A number that JSON spelled as a word, as a number again.
export const real = (value) => typeof value === "string" ? Number(value) : value;

// Nested settings as [path, value], the paths joined by dots.
export function flat(settings, prefix = "") {
  return Object.entries(settings || {}).flatMap(([key, value]) =>
    value && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length
      ? flat(value, prefix + key + ".") : [[prefix + key, value]]);
}
