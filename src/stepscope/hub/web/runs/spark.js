// A line in a cell: the extremes of each stretch, so that a spike is there too.
import { html } from "../h.js";
import { number } from "../parts/format.js";

const WIDTH = 110,
  HEIGHT = 22;

export function Spark({ spark }) {
  if (!spark || !spark.x.length)
    return html`<svg class="spark" width=${WIDTH} height=${HEIGHT} aria-hidden="true"></svg>`;
  const low = Math.min(...spark.min),
    high = Math.max(...spark.max),
    first = spark.x[0],
    span = spark.x.at(-1) - first || 1;
  const x = (i) => (1 + ((spark.x[i] - first) / span) * (WIDTH - 2)).toFixed(1);
  const y = (value) => (HEIGHT - 2 - (high > low ? (value - low) / (high - low) : 0.5) * (HEIGHT - 4)).toFixed(1);
  const middle = spark.x.map((_, i) => `${x(i)},${y((spark.min[i] + spark.max[i]) / 2)}`);
  const area = [
    ...spark.x.map((_, i) => `${x(i)},${y(spark.max[i])}`),
    ...spark.x.map((_, i) => `${x(i)},${y(spark.min[i])}`).reverse(),
  ];
  return html`<svg class="spark" width=${WIDTH} height=${HEIGHT} viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img"
      aria-label=${`${spark.key}: from ${number(low, 3)} to ${number(high, 3)}`}>
    <polygon points=${area.join(" ")} /><polyline points=${middle.join(" ")} /></svg>`;
}
