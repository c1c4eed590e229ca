// The values of a step: what is usual, and what each rank had; the more unusual a value, the stronger its colour.
import { html, useLayoutEffect, useRef, useState } from "../h.js";
import { Switch } from "../parts/controls.js";
import { bytesOf, quantity, real, signed } from "../parts/format.js";

const MOST = 8;

export function Values({ step, rank, onRank }) {
  const [all, setAll] = useState(false);
  const rows = step.metrics
    .filter(({ key }) => all || !/^(system|stepscope)\//.test(key))
    .flatMap(byScope)
    .map(rowOf)
    .sort((a, b) => b.out - a.out || a.key.localeCompare(b.key));
  if (!step.metrics.length) return null;
  const hidden = step.metrics.length - rows.length;
  const ranks = columnsOf(rows, rank);
  const dropped = step.all_ranks.count - ranks.length;
  return html`<section class="step-part" aria-label="Values">
    <header><h3>Values</h3><span class="muted">against the previous ${step.window} steps</span>
      ${hidden > 0 || all ? html`<${Switch} label="all" on=${all} onChange=${setAll} />` : null}</header>
    <${Matrix} label="Values of each rank" focus=${step.step + " " + rank}><table class="plain matrix">
      <thead><tr><th scope="col">metric</th><th scope="col" class="num">usual</th>
        ${ranks.map(
          (each) => html`<th scope="col" key=${each} class=${"num" + (each === rank ? " at" : "")}>
          <button type="button" class="rank-button" aria-pressed=${String(each === rank)}
              onClick=${() => onRank(each === rank ? null : each)}>rank ${each}</button>
          </th>`,
        )}
      </tr></thead>
      <tbody>${rows.map(
        (row) => html`<tr key=${row.key}><th scope="row" title=${row.key}>${row.key}</th>
        <td class="num muted">${row.mean === null ? "–" : quantity(row.mean, row.key, row.unit)}</td>
        ${ranks.map((each) => html`<${Cell} key=${each} row=${row} value=${row.by.get(each)} at=${each === rank} />`)}</tr>`,
      )}</tbody>
    </table><//>
    ${dropped > 0 && html`<p class="muted note">${dropped} more ranks are closer to the usual values.</p>`}
  </section>`;
}

function Cell({ row, value, at }) {
  if (!value) return html`<td class=${"num" + (at ? " at" : "")}>–</td>`;
  const odd = value.level ? ` odd-${value.level}` : "";
  const title = value.before
    ? `${signed(real(value.delta), 3)} against the mean${value.z === null ? "" : `, ${signed(value.z, 3)} deviations`}`
    : "no earlier values to compare with";
  return html`<td class=${"num" + odd + (at ? " at" : "")} title=${title}>${quantity(value.value, row.key, row.unit)}
    <span class="delta">${value.delta === null || isRounding(value) ? "" : difference(real(value.delta), row)}</span></td>`;
}

// Whether a change is less than the digits of the value can say: the mean of equal values is not always that value.
const isRounding = ({ value, delta }) => Math.abs(Number(real(delta))) < 1e-12 * Math.abs(Number(real(value)));

// A change of a metric's value, in its unit.
const difference = (delta, { key, unit }) =>
  bytesOf(key, unit) === null ? signed(delta, 2) : (delta > 0 ? "+" : "") + quantity(delta, key, unit);

// The same name in two instrumentation scopes is two metrics.
function byScope({ key, unit, values }) {
  const scopes = [...new Set(values.map(({ scope }) => scope))];
  if (scopes.length < 2) return [{ key, unit, values }];
  return scopes.map((scope) => ({
    unit,
    key: `${key} · ${scope || "no scope"}`,
    values: values.filter((each) => each.scope === scope),
  }));
}

function rowOf({ key, unit, values }) {
  const by = new Map();
  let out = 0,
    mean = 0,
    n = 0;
  for (const value of values) {
    by.set(value.rank, value);
    out = Math.max(out, oddness(value));
    if (value.mean !== null && Number.isFinite(real(value.mean))) {
      mean += real(value.mean);
      n++;
    }
  }
  return { key, unit, by, out, mean: n ? mean / n : null };
}

// How far down a value sorts: by its level, and within one by its distance.
const oddness = (value) => (value.level ? 1e6 * value.level + Math.min(1e6 - 1, Math.abs(value.z ?? 1e6)) : 0);

// Which ranks get a column: all where they fit, else the strangest.
function columnsOf(rows, rank) {
  const out = new Map();
  for (const row of rows)
    for (const [each, value] of row.by) out.set(each, Math.max(out.get(each) || 0, oddness(value)));
  const strange = [...out]
    .sort((a, b) => Number(b[0] === rank) - Number(a[0] === rank) || b[1] - a[1] || a[0] - b[0])
    .slice(0, MOST);
  return strange.map(([each]) => each).sort((a, b) => a - b);
}

// What a reader looks for first in such a table: the first of these that it has.
const FOCUS = ["td.cause", "td.odd-3", "td.at", "td.odd-2"];

// The scrolling frame of a table with a column for each rank; what matters is brought into sight on narrow screens.
export function Matrix({ label, focus, children }) {
  const ref = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    // The cell goes beside the names, so that no number is cut; again when the fonts have changed the widths.
    const place = () => {
      const box = ref.current,
        cell = FOCUS.map((each) => box?.querySelector(each)).find(Boolean),
        head = box?.querySelector("tbody th");
      if (box && cell && head) box.scrollLeft += cell.getBoundingClientRect().left - head.getBoundingClientRect().right;
    };
    place();
    document.fonts.ready.then(place);
  }, [focus]);
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label} ref=${ref}>${children}</div>`;
}
