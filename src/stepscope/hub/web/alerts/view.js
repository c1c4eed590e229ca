// Alerts: what fires now, what fired before, the rules with a preview over a run, and what is silenced.
import { html, useEffect } from "../h.js";
import { useAccess } from "../access.js";
import { address, fetchJson, get } from "../api.js";
import { useParam, useTab } from "../router.js";
import { useFetch, useNow } from "../use.js";
import { ago, count, lasting } from "../parts/format.js";
import { Choice } from "../parts/controls.js";
import { act } from "../parts/overlays.js";
import { Fetched, Empty } from "../parts/states.js";
import { AlertDetails, AlertList } from "./list.js";
import { Rules } from "./rules.js";

const EVERY_MS = 3000,
  MOST = 300;
const TABS = [
  ["firing", "Firing"],
  ["history", "History"],
  ["rules", "Rules"],
  ["silences", "Silences"],
];
const WORST = ["FATAL", "ERROR", "WARN", "INFO"];
const OPEN = ["firing", "recovering", "no-data", "error"];

export default function Alerts() {
  const [tab, setTab] = useTab(TABS.map(([name]) => name));
  const [run] = useParam("run", "");
  const [shown, setShown] = useParam("alert", "");
  const fetched = useFetch((signal) => get("alerts/states", { run, limit: MOST }, signal), [run]);
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) fetched.reload();
    }, EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  return html`<div class="page alerts">
    <div class="page-head"><h1>Alerts</h1>
      ${fetched.value && html`<${Summary} counts=${fetched.value.counts} />`}
      <span class="grow"></span>
      <${Choice} label="Show" value=${tab} options=${TABS} onChange=${setTab} /></div>
    ${
      tab === "rules"
        ? html`<${Rules} />`
        : tab === "silences"
          ? html`<${Silences} />`
          : html`<${Fetched} fetched=${fetched} what="Loading alerts">
            ${(found) => html`<${Shown} found=${found} tab=${tab} open=${setShown} reload=${fetched.reload} />`}<//>`
    }
    ${shown && html`<${AlertDetails} key=${shown} id=${shown} onClose=${() => setShown("")} reload=${fetched.reload} />`}
  </div>`;
}

function Summary({ counts }) {
  const open = OPEN.reduce((sum, state) => sum + counts[state], 0);
  const waiting = counts.pending ? `, ${count(counts.pending)} pending` : "";
  return html`<p class=${"alerts-summary " + (open ? "bad-text" : "good-text")} role="status">
    ${open ? `${count(open)} open` : "No alerts firing"}${waiting}</p>`;
}

function Shown({ found, tab, open, reload }) {
  const rows = found.alerts.filter(
    (alert) => tab === "history" || OPEN.includes(alert.state) || alert.state === "pending",
  );
  // Firing alerts are sorted by severity; the history by time.
  if (tab !== "history") rows.sort((a, b) => WORST.indexOf(a.severity) - WORST.indexOf(b.severity));
  if (rows.length) return html`<${AlertList} alerts=${rows} open=${open} reload=${reload} />`;
  return tab === "history"
    ? html`<div class="panel"><${Empty} title="No alert has fired yet">
        Rules and findings raise alerts as runs are recorded; the built-in packs are on.<//></div>`
    : html`<div class="panel"><${Empty} title="No alerts firing">
        What fired before is under History, what is watched under Rules.<//></div>`;
}

// Silences with an end, and marks as expected.
function Silences() {
  const fetched = useFetch((signal) => get("alerts/silences", {}, signal), []);
  const now = useNow(10000);
  const access = useAccess(),
    may = access.may("admin") && !access.limit;
  const remove = (id) =>
    act(() => fetchJson(address(`alerts/silences/${id}`), { method: "DELETE" }), "Removed.", fetched.reload);
  return html`<${Fetched} fetched=${fetched} what="Loading silences">${({ silences, expected }) =>
    !silences.length && !expected.length
      ? html`<div class="panel"><${Empty} title="Nothing is silenced">Silence an alert where it is listed.<//></div>`
      : html`<section class="alert-part panel"><div class="alert-scroll" tabindex="0" role="region"
            aria-label="Silences"><table class="plain">
        <thead><tr><th>what</th><th>where</th><th>until</th><th>by</th><th>why</th><th></th></tr></thead>
        <tbody>${silences.map(
          (each) => html`<tr key=${each.id}><th scope="row">${each.rule} · ${each.key}</th><td>${each.run}</td>
            <td>${lasting(Math.max(0, each.until - now))} left</td><td>${each.who}</td><td>${each.why}</td>
            <td>${may && html`<button type="button" class="button" onClick=${() => remove(each.id)}>Remove</button>`}</td></tr>`,
        )}
        ${expected.map(
          (each) => html`<tr key=${each.id}><th scope="row">${each.finding || each.rule} · ${each.key}</th>
            <td>${each.run || `project ${each.project}`}</td><td>expected, marked ${ago(each.time, now)}</td>
            <td>${each.who}</td><td></td>
            <td>${may && html`<button type="button" class="button" onClick=${() => remove(each.id)}>Remove</button>`}</td></tr>`,
        )}</tbody></table></div></section>`}<//>`;
}
