// Alerts as a list with what can be done about each, and one alert with the snapshot that explains it.
import { html } from "../h.js";
import { useAccess } from "../access.js";
import { get, post } from "../api.js";
import { href } from "../router.js";
import { useFetch, useNow } from "../use.js";
import { ago, clock, count, millis, number, plain, real } from "../parts/format.js";
import { Menu, Severity } from "../parts/controls.js";
import { act, Drawer } from "../parts/overlays.js";
import { useRunName } from "../parts/run_names.js";
import { Fetched } from "../parts/states.js";

const SIGNS = {
  pending: "◔",
  firing: "●",
  recovering: "◐",
  resolved: "✓",
  "no-data": "○",
  error: "✕",
  inactive: "–",
};
const SILENCES = [
  ["1h", "for 1 hour"],
  ["8h", "for 8 hours"],
  ["7d", "for a week"],
];

const statePath = (id, ...rest) => ["alerts/states", encodeURIComponent(id), ...rest].join("/");

function State({ state }) {
  return html`<span class=${"alert-state " + state}><span aria-hidden="true">${SIGNS[state]}</span> ${state}</span>`;
}

export function AlertList({ alerts, open, reload }) {
  const now = useNow(5000);
  return html`<ul class="alert-list panel">
    ${alerts.map(
      (alert) => html`<li key=${alert.id} class=${"alert-row " + alert.state} data-id=${alert.id}>
        <div class="alert-mark"><${State} state=${alert.state} /><${Severity} severity=${alert.severity} /></div>
        <div class="alert-main">
          <button type="button" class="alert-message" onClick=${() => open(alert.id)}>${alert.message}</button>
          <p class="alert-facts"><${Facts} alert=${alert} now=${now} /></p>
        </div>
        <${Actions} alert=${alert} reload=${reload} />
      </li>`,
    )}
  </ul>`;
}

function Facts({ alert, now }) {
  const where = alert.step === null ? {} : { step: alert.step };
  return html`<a href=${href("run", alert.run, where)} title=${alert.run}>${useRunName(alert.run)}</a>
    ${alert.step !== null && html`<span>step ${alert.step}</span>`}
    ${alert.rank !== null && html`<span>rank ${alert.rank}</span>`}
    <span title=${clock(alert.fired || alert.began)}>
      ${alert.resolved ? `ended ${ago(alert.resolved, now)}` : `since ${ago(alert.fired || alert.began, now)}`}</span>
    <span>${alert.finding || alert.rule}</span>
    ${alert.count > 1 && html`<span>${count(alert.count)} times</span>`}
    ${alert.acknowledged && html`<span class="chip">acknowledged by ${alert.acknowledged_by}</span>`}
    ${alert.muted && html`<span class="chip warn">not sent: ${alert.muted}</span>`}
    ${alert.ended && html`<span class="chip">run ended</span>`}`;
}

function Actions({ alert, reload }) {
  const rule = alert.finding ? `finding ${alert.finding}` : alert.rule;
  const silence = (time) =>
    act(
      () => post("alerts/silences", { rule, run: alert.run, key: alert.key || "*", for: time }),
      "Silenced: no notifications until it ends.",
      reload,
    );
  const expect = (project) =>
    act(() => post(statePath(alert.id, "expected"), { project }), "Marked as expected.", reload);
  const isOpen = !["resolved", "inactive"].includes(alert.state);
  const { may, limit } = useAccess();
  if (!may("admin")) return null;
  return html`<div class="alert-actions">
    ${
      isOpen &&
      !alert.acknowledged &&
      html`<button type="button" class="button" title="Stop repeated notifications: you are working on it"
          onClick=${() => act(() => post(statePath(alert.id, "acknowledge"), {}), "Acknowledged.", reload)}>
        Acknowledge</button>`
    }
    ${
      !limit &&
      html`<${Menu} label="Silence" align="right">${(close) =>
        SILENCES.map(
          ([time, text]) =>
            html`<button type="button" key=${time} class="item" onClick=${() => {
              close();
              silence(time);
            }}>${text}</button>`,
        )}<//>`
    }
    ${
      !alert.expected &&
      html`<${Menu} label="Expected" align="right" title="Not a fault: similar alerts send no notifications">
        ${(close) =>
          [false, true].map(
            (project) =>
              html`<button type="button" key=${project} class="item" onClick=${() => {
                close();
                expect(project);
              }}>${project ? `in project ${alert.project}` : "in this run"}</button>`,
          )}<//>`
    }
  </div>`;
}

export function AlertDetails({ id, onClose, reload }) {
  const fetched = useFetch((signal) => get(statePath(id), {}, signal), [id]);
  return html`<${Drawer} label="Alert" title=${fetched.value ? fetched.value.finding || fetched.value.rule : "Alert"}
      onClose=${onClose}>
    <${Fetched} fetched=${fetched} what="Loading the alert">${(alert) => html`<${Explained} alert=${alert} />
      <${Actions} alert=${alert} reload=${() => {
        fetched.reload();
        reload();
      }} />`}<//>
  <//>`;
}

function Explained({ alert }) {
  const facts = [
    ["State", html`<${State} state=${alert.state} />`],
    ["Severity", html`<${Severity} severity=${alert.severity} />`],
    ["Run", html`<a href=${href("run", alert.run)}>${alert.run_name || alert.run}</a>`],
    ["Metric", alert.key],
    ["Condition", alert.threshold],
    ["Value", alert.value === null ? null : number(alert.value)],
    [
      "Steps",
      alert.step === null ? null : alert.last_step > alert.step ? `${alert.step} to ${alert.last_step}` : alert.step,
    ],
    ["Began", clock(alert.began)],
    ["Notified", alert.notified ? clock(alert.notified) : "nobody"],
    ["Seen by", alert.seen_by.join(", ")],
    ["Error", alert.error],
  ].filter(([, value]) => value !== null && value !== "");
  return html`<p class="alert-text">${alert.message}</p>
    ${alert.band && html`<p>${alert.band}.</p>`}
    ${alert.cause && html`<p>Likely cause: ${alert.cause}.</p>`}
    ${alert.advice && html`<p class="alert-advice">${alert.advice}</p>`}
    <dl class="alert-facts-list">${facts.map(
      ([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`,
    )}</dl>
    <h3>When it fired</h3>
    <${Snapshot} found=${alert.snapshot} alert=${alert} />`;
}

function Snapshot({ found, alert }) {
  if (!found) return html`<p class="muted">No snapshot: the records were not stored yet, or were deleted.</p>`;
  if (found.error) return html`<p class="bad-text">${found.error}</p>`;
  return html`${found.values && html`<${Line} values=${found.values} step=${alert.step} />`}
    <h4>Slowest spans ${found.step === null ? "" : `of step ${plain(found.step)}`}</h4>
    ${
      found.spans.length
        ? html`<table class="plain"><tbody>${found.spans.map(
            (span, at) => html`<tr key=${at}><th scope="row">${span.name}</th><td>rank ${span.rank}</td>
              <td class="num">${millis(span.duration_ms)}</td><td class="bad-text">${span.message}</td></tr>`,
          )}</tbody></table>`
        : html`<p class="muted">None.</p>`
    }
    <h4>Logs around it</h4>
    ${
      found.logs.length
        ? html`<table class="plain alert-logs"><tbody>${found.logs.map(
            (
              line,
              at,
            ) => html`<tr key=${at}><td>${clock(line.time)}</td><td><${Severity} severity=${line.severity} /></td>
              <td>${line.name || ""} ${line.body}</td></tr>`,
          )}</tbody></table>`
        : html`<p class="muted">None.</p>`
    }`;
}

// The values around the step as a small line, with a mark where the breach began; what is not finite is a gap.
function Line({ values, step }) {
  const width = 640,
    height = 120,
    finite = values.value.map(real).filter(Number.isFinite);
  if (!finite.length) return html`<p>${values.key}: ${values.value.join(", ")}</p>`;
  const low = Math.min(...finite),
    high = Math.max(...finite),
    first = values.x[0],
    last = values.x.at(-1);
  const across = (x) => ((x - first) / (last - first || 1)) * width;
  const up = (value) => height - 4 - ((value - low) / (high - low || 1)) * (height - 8);
  const marks = values.value.map((value, at) => [values.x[at], real(value)]);
  const path = marks.reduce(
    ([text, pen], [x, value]) =>
      Number.isFinite(value) ? [`${text}${pen}${across(x).toFixed(1)},${up(value).toFixed(1)}`, "L"] : [text, "M"],
    ["", "M"],
  )[0];
  return html`<figure class="alert-line">
    <svg viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" role="img"
        aria-label=${`${values.key}, from ${number(low)} to ${number(high)}`}>
      ${step !== null && html`<line class="began" x1=${across(step)} x2=${across(step)} y1="0" y2=${height} />`}
      <path d=${path} /></svg>
    <figcaption>${values.key}: ${number(low)} to ${number(high)}, ${step === null ? "" : `steps ${first} to ${last}`}
      </figcaption></figure>`;
}
