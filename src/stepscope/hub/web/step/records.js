// Logs, events, alerts and spans still open at a step.
import { html } from "../h.js";
import { href } from "../router.js";
import { Severity } from "../parts/controls.js";
import { bytesOf, clock, count, flat, plain, quantity } from "../parts/format.js";
import { Matrix } from "./values.js";

const MOST = 200;

export function Records({ step, run }) {
  const records = [...step.alerts, ...step.logs].sort((a, b) => a.time - b.time);
  if (!records.length && !step.open_spans.length) {
    return html`<section class="step-part" aria-label="Logs and events">
      <header><h3>Logs, events, alerts</h3></header><p class="muted note">None at this step.</p></section>`;
  }
  return html`<section class="step-part" aria-label="Logs and events">
    <header><h3>Logs, events, alerts</h3><span class="muted">${count(records.length)}</span></header>
    <ol class="records">${records.slice(0, MOST).map(
      (record, at) => html`<li key=${at}>
      <time class="muted mono" title=${clock(record.time, { exact: true })}>
        ${clock(record.time, { exact: true }).slice(11)}</time>
      <${Severity} severity=${record.severity} />
        <span class="muted rank-mark">r${record.rank}
          ${record.attempt !== step.attempt ? ` attempt ${record.attempt}` : ""}</span>
      <span class="record-text">${record.kind !== "log" && html`<b>${record.kind} ${record.name}</b>${" "}`}
        ${body(record)}
        ${attrs(record)}
        ${
          record.trace_id &&
          html`${" "}<a href=${href("traces", { trace: record.trace_id, span: record.span_id })}>span</a>`
        }
        </span>
        </li>`,
    )}
    </ol>
    ${
      records.length > MOST &&
      html`<p class="note">
        <a href=${href("logs", { run, step: step.step })}>${records.length - MOST} more in the logs</a></p>`
    }
    ${step.open_spans.map(
      (span) => html`<p class="note warn-text" key=${span.span_id}>Still open on rank ${span.rank}: ${span.name}</p>`,
    )}
  </section>`;
}

const body = (record) =>
  record.body === null || record.body === undefined
    ? ""
    : typeof record.body === "string"
      ? record.body
      : plain(record.body);

function attrs(record) {
  const shown = flat(record.attrs).slice(0, 8);
  if (!shown.length) return null;
  return html`<span class="attrs muted mono">${shown.map(([key, value]) => `${key}=${plain(value)}`).join("  ")}
  </span>`;
}

// The machine around a step: GPU, memory and whatever else was read within seconds of it.
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
                      title=${`${reading(row, row.min)} … ${reading(row, row.max)} over ${row.points} readings`}>
                        ${reading(row, row.value)}</span>`,
              )}</td>`,
        )}</tr>`,
      )}</tbody>
    </table><//></section>`;
}

const reading = ({ key, unit }, value) =>
  quantity(value, key, unit) + (unit && bytesOf(key, unit) === null ? " " + unit : "");
