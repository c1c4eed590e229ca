// The machine around a step: GPU, memory and whatever else was read within seconds of it.
import { html } from "../h.js";
import { bytesOf, quantity } from "../parts/format.js";
import { Matrix } from "./matrix.js";

export function System({ step }) {
  const rows = step.system;
  if (!rows.length) return null;
  const keys = [...new Set(rows.map((row) => row.key))].sort();
  const ranks = [...new Set(rows.map((row) => row.rank))].sort((a, b) => a - b).slice(0, 8);
  const find = (key, rank) => rows.filter((row) => row.key === key && row.rank === rank);
  return html`<section class="step-part" aria-label="Machine">
    <header><h3>Machine</h3><span class="muted">within 15 s</span></header>
    <${Matrix} label="Readings of each rank" focus=${step.step + " " + 0}>
      <table class="plain matrix"><thead><tr><th scope="col">reading</th>
      ${ranks.map((rank) => html`<th scope="col" class="num" key=${rank}>rank ${rank}</th>`)}</tr></thead>
      <tbody>${keys.map(
        (key) => html`<tr key=${key}><th scope="row" title=${key}>${key.replace(/^system\//, "")}</th>
        ${ranks.map(
          (rank) =>
            html`<td class="num" key=${rank}>${find(key, rank)
              .slice(0, 1)
              .map(
                (row) =>
                  html`<span
                      title=${`${said(row, row.min)} … ${said(row, row.max)} over ${row.points} readings`}>
                        ${said(row, row.value)}</span>`,
              )}</td>`,
        )}</tr>`,
      )}</tbody>
    </table><//></section>`;
}

const said = ({ key, unit }, value) =>
  quantity(value, key, unit) + (unit && bytesOf(key, unit) === null ? " " + unit : "");
