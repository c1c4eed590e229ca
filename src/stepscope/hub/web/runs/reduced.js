// Columns that the hub computes from points: last10.KEY, a mean, metrics.KEY@best.OTHER, the value where another is best, and
// what the GPUs of a run used.
import { html, useId, useState } from "../h.js";
import { number, quantity, ordinal, percent } from "../parts/format.js";

const MOST = 1000; // steps of a mean
const WORDS = { best: "best", min: "lowest", max: "highest" };

/**
 * What a run used of its GPUs: title, meaning, and how a value is written.
 * @type {Record<string, [string, string, (value: number) => string]>}
 */
export const GPU = {
  gpu_hours: ["GPU hours", "hours of all GPUs of the run, idle ones too", (value) => number(value, 3)],
  gpu_kwh: ["GPU kWh", "energy that the GPUs of the run took, as they report it", (value) => number(value, 3)],
  gpu_utilization: ["GPU busy", "share of the GPU hours in which the GPUs computed", percent],
};

/** @typedef {{ key: string, steps: number, by: string, other: string }} Reduced */

/**
 * The parts of such a column; null for any other.
 * @param {string} id
 * @returns {Reduced | null}
 */
export function reducedOf(id) {
  if (id in GPU) return { key: id, steps: 0, by: "gpu", other: "" };
  const last = /^last(\d{1,9})\.(.+)$/s.exec(id);
  if (last) return { key: last[2], steps: Number(last[1]), by: "", other: "" };
  const name = id.startsWith("metrics.") ? id.slice(8) : "",
    at = /@(best|min|max)\./.exec(name);
  if (!at || !at.index || at.index + at[0].length === name.length) return null;
  return { key: name.slice(0, at.index), steps: 0, by: at[1], other: name.slice(at.index + at[0].length) };
}

/** Those of some columns that the hub computes from points. */
export const reducedAmong = (ids) => ids.filter((id) => reducedOf(id));

const short = (key) => key.slice(key.indexOf("/") + 1);

/** Title, hint and cell of such a column. */
export function reducedColumn(id, { key, steps, by, other }) {
  if (by === "gpu") return gpuColumn(id);
  return {
    title: by ? `${short(key)} at ${by} ${short(other)}` : `${short(key)}, mean of ${steps}`,
    hint: by ? `${key} where ${other} is ${WORDS[by]}` : `mean of ${key} over its last ${steps} steps, of all ranks`,
    width: "156px",
    align: "right",
    sortable: id,
    cell: (run) => {
      const found = run.columns?.[id];
      if (!found) return html`<span class="muted">–</span>`;
      const odd = typeof found.value === "string";
      return html`<span class=${"mono" + (odd ? " bad-text" : "")} title=${`${found.key}, step ${ordinal(found.step)}`}
        >${quantity(found.value, found.key, found.unit)}</span>`;
    },
  };
}

function gpuColumn(id) {
  const [title, hint, text] = GPU[id];
  const cell = (run) =>
    run.columns?.[id]
      ? html`<span class="mono">${text(run.columns[id].value)}</span>`
      : html`<span class="muted">–</span>`;
  return { title, hint, width: "96px", align: "right", sortable: id, cell };
}

/** A form that makes such a column of two metrics, or of one and a number. */
export function ReducedForm({ metrics, onAdd }) {
  const [kind, setKind] = useState("last"),
    [key, setKey] = useState(""),
    [steps, setSteps] = useState("10"),
    [other, setOther] = useState("");
  const list = useId();
  const isMean = kind === "last",
    amount = Number(steps);
  const ready =
    key.trim() && (isMean ? Number.isInteger(amount) && amount >= 1 && amount <= MOST : other.trim() !== "");
  const add = (event) => {
    event.preventDefault();
    if (ready) onAdd(isMean ? `last${amount}.${key.trim()}` : `metrics.${key.trim()}@${kind}.${other.trim()}`);
  };
  return html`<form class="reduced" onSubmit=${add}>
    <h3>Add a computed column</h3>
    <input type="text" aria-label="Metric" placeholder="metric" list=${list} value=${key} autocomplete="off"
        onInput=${(event) => setKey(event.target.value)} />
    <select aria-label="What of it" value=${kind} onChange=${(event) => setKind(event.target.value)}>
      <option value="last" selected=${isMean}>mean of the last steps</option>
      ${Object.entries(WORDS).map(
        ([by, word]) => html`<option key=${by} value=${by} selected=${kind === by}>where another is ${word}</option>`,
      )}
    </select>
    ${
      isMean
        ? html`<input type="number" aria-label="Steps" min="1" max=${MOST} value=${steps}
            onInput=${(event) => setSteps(event.target.value)} />`
        : html`<input type="text" aria-label="Other metric" placeholder="other metric" list=${list} value=${other} autocomplete="off"
            onInput=${(event) => setOther(event.target.value)} />`
    }
    <button type="submit" class="button" disabled=${!ready}>Add</button>
    <datalist id=${list}>${metrics.slice(0, 500).map(({ name }) => html`<option key=${name} value=${name} />`)}</datalist>
  </form>`;
}
