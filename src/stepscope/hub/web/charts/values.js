// The values of each line below a chart: the last, the lowest and the highest of what is drawn.
import { html } from "../h.js";
import { Swatch } from "../parts/controls.js";
import { quantity } from "../parts/format.js";

const MAX_ROWS = 12;

/**
 * The values of a line: its last one as the hub has it, or within a zoom the last that is drawn.
 * @param {any} line
 * @param {boolean} zoomed
 */
export function valuesOf({ marks, last }, zoomed) {
  const known = (values) => values.filter((value) => value !== null);
  const extreme = (values, better) => known(values).reduce((a, b) => (a === null || better(b, a) ? b : a), null);
  const end = zoomed || !last ? (known(marks.mid).at(-1) ?? null) : last.value;
  return {
    last: end,
    lowest: extreme(marks.low, (a, b) => a < b),
    highest: extreme(marks.high, (a, b) => a > b),
  };
}

export function Values({ lines, metric: { key, unit }, zoomed, title }) {
  const cell = (value) => html`<td class="num mono">${value === null ? "–" : quantity(value, key, unit)}</td>`;
  return html`<div class="chart-values"><table aria-label=${`Values of ${title}`}>
    <thead><tr><th scope="col">${lines.length > 1 ? "line" : ""}</th>
      ${["last", "lowest", "highest"].map((name) => html`<th key=${name} scope="col" class="num">${name}</th>`)}</tr></thead>
    <tbody>${lines.slice(0, MAX_ROWS).map((line) => {
      const { last, lowest, highest } = valuesOf(line, zoomed);
      return html`<tr key=${line.id}><th scope="row" title=${line.name}><${Swatch} at=${line.at} />
        <span>${line.short || line.name}</span></th>${cell(last)}${cell(lowest)}${cell(highest)}</tr>`;
    })}</tbody>
  </table>${lines.length > MAX_ROWS && html`<p class="muted">and ${lines.length - MAX_ROWS} more</p>`}</div>`;
}
