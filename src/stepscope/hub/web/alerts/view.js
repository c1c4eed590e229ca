// Alerts: what fires now, what fired before, the rules with a preview over a run, and what is silenced.
import { html, useEffect } from "../h.js";
import { get } from "../api.js";
import { useParam } from "../router.js";
import { useAsk } from "../use.js";
import { count } from "../parts/format.js";
import { Choice } from "../parts/controls.js";
import { Asked, Empty } from "../parts/states.js";
import { AlertDetails, AlertList } from "./list.js";
import { Rules } from "./rules.js";
import { Silences } from "./silences.js";

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
  const [tab, setTab] = useParam("tab", "firing");
  const [run] = useParam("run", "");
  const [shown, setShown] = useParam("alert", "");
  const asked = useAsk((signal) => get("alerts/states", { run, limit: MOST }, signal), [run]);
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) asked.again();
    }, EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  return html`<div class="page alerts">
    <div class="page-head"><h1>Alerts</h1>
      ${asked.value && html`<${Summary} counts=${asked.value.counts} />`}
      <span class="grow"></span>
      <${Choice} label="Show" value=${tab} options=${TABS} onChange=${setTab} /></div>
    ${
      tab === "rules"
        ? html`<${Rules} />`
        : tab === "silences"
          ? html`<${Silences} />`
          : html`<${Asked} asked=${asked} what="Reading alerts">
            ${(found) => html`<${Shown} found=${found} tab=${tab} open=${setShown} again=${asked.again} />`}<//>`
    }
    ${shown && html`<${AlertDetails} key=${shown} id=${shown} onClose=${() => setShown("")} again=${asked.again} />`}
  </div>`;
}

function Summary({ counts }) {
  const open = OPEN.reduce((sum, state) => sum + counts[state], 0);
  const waiting = counts.pending ? `, ${count(counts.pending)} pending` : "";
  return html`<p class=${"alerts-summary " + (open ? "bad-text" : "good-text")} role="status">
    ${open ? `${count(open)} open` : "No alerts firing"}${waiting}</p>`;
}

function Shown({ found, tab, open, again }) {
  const rows = found.alerts.filter(
    (alert) => tab === "history" || OPEN.includes(alert.state) || alert.state === "pending",
  );
  // What is worst stands first among what fires; the history is as it came.
  if (tab !== "history") rows.sort((a, b) => WORST.indexOf(a.severity) - WORST.indexOf(b.severity));
  if (rows.length) return html`<${AlertList} alerts=${rows} open=${open} again=${again} />`;
  return tab === "history"
    ? html`<div class="panel"><${Empty} title="No alert has fired yet">
        Rules and findings raise alerts as runs are recorded; the built-in packs are on.<//></div>`
    : html`<div class="panel"><${Empty} title="No alerts firing">
        What fired before is under History, what is watched under Rules.<//></div>`;
}
