// The step inspector: everything about one step, on every rank, against the steps before it.
import { html, useEffect, useState } from "../h.js";
import { get, runPath } from "../api.js";
import { href } from "../router.js";
import { useAsk, useKey } from "../use.js";
import { clock, count, millis } from "../parts/format.js";
import { Drawer } from "../parts/drawer.js";
import { Asked, Empty } from "../parts/states.js";
import { IconButton } from "../parts/toolbar.js";
import { Findings } from "./findings.js";
import { Lanes } from "./lanes.js";
import { Records } from "./records.js";
import { SpanTable } from "./spans.js";
import { System } from "./system.js";
import { Values } from "./values.js";

export function StepDrawer({ run, step, at, onStep, onClose }) {
  const asked = useAsk((signal) => get(runPath(run, "steps", step), {}, signal), [run, step]);
  const now = asked.value?.step === step ? asked.value : null;
  const [rank, setRank] = useState(at);
  useEffect(() => setRank(at), [step, at]);
  const to = (place) => place !== null && place !== undefined && onStep(place, null);
  useKey("[", () => to(now?.previous), [now]);
  useKey("]", () => to(now?.next), [now]);
  useKey("n", () => to(now?.next_anomaly?.step), [now]);
  useKey("p", () => to(now?.previous_anomaly?.step), [now]);
  const anomaly = (place, word) => place ? `${word} anomaly: step ${count(place.step)}, ${place.reason}` : `No ${word.toLowerCase()} anomaly`;
  const actions = html`
    <${IconButton} icon="back" label=${anomaly(now?.previous_anomaly, "Previous")} shortcut="p" disabled=${!now?.previous_anomaly} onClick=${() => to(now.previous_anomaly.step)} />
    <${IconButton} icon="left" label="Previous step" shortcut="[" disabled=${now ? now.previous === null : true} onClick=${() => to(now.previous)} />
    <${IconButton} icon="right" label="Next step" shortcut="]" disabled=${now ? now.next === null : true} onClick=${() => to(now.next)} />
    <${IconButton} icon="skip" label=${anomaly(now?.next_anomaly, "Next")} shortcut="n" disabled=${!now?.next_anomaly} onClick=${() => to(now.next_anomaly.step)} />`;
  return html`<${Drawer} label=${`Step ${step}`} onClose=${onClose} actions=${actions}
      title=${html`Step ${count(step)}${rank !== null ? html`<span class="step-rank"> on rank ${rank}</span>` : null}`}>
    <${Asked} asked=${asked} what=${`Reading step ${step}`}>${(found) => html`
      <div class=${"step" + (now ? "" : " old")} aria-busy=${String(!now)}>
        <p class="step-when muted"><span>${clock(found.begin, { exact: true })}</span><span>lasted ${millis(found.duration_ms)} over all ranks</span>
          <a href=${href("traces", { run, step: found.step })}>traces</a><a href=${href("logs", { run, step: found.step })}>logs</a></p>
        ${isBare(found) ? html`<${Empty} title="Nothing was recorded at this step">Use the arrows above to go to a step that has records.<//>` : html`
          <${Findings} step=${found} rank=${rank} />
          <${Values} step=${found} rank=${rank} onRank=${setRank} />
          <${SpanTable} step=${found} rank=${rank} />
          <${Lanes} step=${found} rank=${rank} />
          <${Records} step=${found} run=${run} />
          <${System} step=${found} />`}
      </div>`}<//>
  <//>`;
}

const isBare = (step) => !step.metrics.length && !step.ranks.length && !step.logs.length && !step.alerts.length && !step.open_spans.length;
