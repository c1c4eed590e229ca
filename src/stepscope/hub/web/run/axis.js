// What runs along x, as the address has it: steps, one of two times, or a metric by its name.
const PLAIN = ["step", "time", "relative"],
  METRIC = "metric:";

// The address's word for a metric: its name, marked where the name alone would mean something else.
export const axisText = (key) => (PLAIN.includes(key) || key.startsWith(METRIC) ? METRIC + key : key);

export function axisOf(text) {
  if (PLAIN.includes(text)) return { x: text, xKey: null, xText: text };
  const xKey = text.startsWith(METRIC) ? text.slice(METRIC.length) : text;
  return { x: "metric", xKey, xText: axisText(xKey) };
}

// The ends of a zoom as the address has them: whole steps, or as many figures as its width needs.
export function ends(low, high, x) {
  if (x === "step") return { from: String(Math.floor(low)), to: String(Math.ceil(high)) };
  const most = Math.max(Math.abs(low), Math.abs(high)),
    digits = Math.ceil(Math.log10(most / (high - low))) + 5;
  const written = (value) => String(Number(value.toPrecision(Math.max(5, Math.min(17, digits || 5)))));
  return { from: written(low), to: written(high) };
}
