// A number of a group of runs: the mean, and the standard deviation over its runs.
import { html } from "../h.js";
import { count, lasting, quantity } from "../parts/format.js";

const write = (id, { key, unit }, value, digits) =>
  id === "duration" ? lasting(value) : quantity(value, key, unit, digits);

/** The cell of a column in the row of a group, with `brief` the mean alone; nothing where its runs have no such number. */
export function Spread({ id, row, brief = false }) {
  const found = row.columns[id];
  if (!found) return null;
  const part = found.runs < row.size ? `${count(found.runs)} of ${count(row.size)}` : count(row.size);
  const of = `mean ± standard deviation of ${part} ${row.size === 1 ? "run" : "runs"}`;
  const spread = found.std === null ? "" : ` ± ${write(id, found, found.std, 3)}`;
  const range = `${write(id, found, found.mean, 4)}${spread}, from ${write(id, found, found.min, 4)} to ${write(id, found, found.max, 4)}`;
  return html`<span class="mono spread" title=${`${of}: ${range}`}>${write(id, found, found.mean, brief ? 3 : 4)}${
    !brief && found.std !== null && html`<span class="muted"> ± ${write(id, found, found.std, 2)}</span>`
  }</span>`;
}
