// The step inspector: everything about one step, on every rank, against the steps before it.
import { html, useEffect, useState } from "../h.js";
import { get, runPath } from "../api.js";
import { href } from "../router.js";
import { useFetch, useKey, usePollUntilComplete } from "../use.js";
import { Icon, IconButton, Select } from "../parts/controls.js";
import { clock, count, millis } from "../parts/format.js";
import { Drawer } from "../parts/overlays.js";
import { Fetched, Empty, Failure } from "../parts/states.js";
import { useStep } from "./pages.js";
import { Records, System } from "./records.js";
import { AllRanks, Lanes, SpanTable } from "./spans.js";
import { Values } from "./values.js";

export function StepDrawer({ run, step, at, attempt, onStep, onClose }) {
  const fetched = useStep(run, step, attempt, at);
  usePollUntilComplete(fetched);
  const now =
    !fetched.error && fetched.value?.step === step && (attempt ?? fetched.value.attempt) === fetched.value.attempt
      ? fetched.value
      : null;
  const [rank, setRank] = useState(at);
  useEffect(() => setRank(at), [step, at]);
  const [earlier, later] = useAnomalies(run, now);
  // The steps beside are looked at as this one is; what is wrong elsewhere may be so on any rank, in an attempt of its own.
  const to = (place, ...how) => place !== null && place !== undefined && onStep(place, ...how);
  const beside = (place) => to(place, rank, attempt);
  useKey("[", () => beside(now?.previous), [now, rank]);
  useKey("]", () => beside(now?.next), [now, rank]);
  const wrong = (place) => place && to(place.step, null, place.attempt);
  useKey("n", () => wrong(later), [now, later?.step, later?.attempt]);
  useKey("p", () => wrong(earlier), [now, earlier?.step, earlier?.attempt]);
  const anomaly = (place, word) =>
    place ? `${word} anomaly: step ${place.step}, ${place.reason}` : `No ${word.toLowerCase()} anomaly`;
  const actions = html`
    <${IconButton} icon="back" label=${anomaly(earlier, "Previous")} shortcut="p" disabled=${!earlier}
        onClick=${() => wrong(earlier)} />
    <${IconButton} icon="left" label="Previous step" shortcut="[" disabled=${now ? now.previous === null : true}
        onClick=${() => beside(now.previous)} />
    <${IconButton} icon="right" label="Next step" shortcut="]" disabled=${now ? now.next === null : true}
        onClick=${() => beside(now.next)} />
    <${IconButton} icon="skip" label=${anomaly(later, "Next")} shortcut="n" disabled=${!later}
        onClick=${() => wrong(later)} />`;
  const where =
    (now?.attempts.length > 1 ? ` in attempt ${now.attempt}` : "") + (rank !== null ? ` on rank ${rank}` : "");
  return html`<${Drawer} label=${`Step ${step}`} onClose=${onClose} actions=${actions}
      title=${html`Step ${step}<span class="step-rank">${where}</span>`}>
    ${
      fetched.error
        ? html`<${Failure} error=${fetched.error} reload=${fetched.reload} />
      ${
        attempt !== null &&
        html`<p class="step-other">
          <button type="button" class="button" onClick=${() => onStep(step, rank)}>Show the newest attempt</button></p>`
      }`
        : html`<${Fetched} fetched=${fetched} what=${`Loading step ${step}`}>${(found) => html`
      <div class=${"step" + (now ? "" : " old")} aria-busy=${String(!now)}>
        <p class="step-when muted">${found.begin !== null && html`<span>${clock(found.begin, { exact: true })}</span>`}
          ${found.duration_ms > 0 && html`<span>${millis(found.duration_ms)} across all ranks</span>`}
          ${
            found.attempts.length > 1 &&
            html`<${Attempts} found=${found} onChange=${(other) => onStep(found.step, rank, other)} />`
          }
          <a href=${href("traces", { run, step: found.step })}>traces</a>
            <a href=${href("logs", { run, step: found.step })}>logs</a>
          ${Object.entries(found.samples).map(
            ([table, rows]) =>
              html`<a key=${table} href=${href("run", run, { tab: "samples", table, on: found.step })}>
                ${count(rows)} in ${table}</a>`,
          )}</p>
        ${
          isEmpty(found)
            ? html`<${Empty}
                title="No records at this step">Use the arrows above to go to a step that has records.<//>`
            : html`
          <${Findings} step=${found} rank=${rank} />
          <${Values} step=${found} rank=${rank} onRank=${setRank} />
          <${SpanTable} step=${found} rank=${rank} />
          <${AllRanks} step=${found} onRank=${(other) => onStep(found.step, other, attempt)} />
          <${Lanes} step=${found} rank=${rank} more=${fetched.more} />
          <${Records} step=${found} run=${run} />
          <${System} step=${found} />`
        }
      </div>`}<//>`
    }
  <//>`;
}

// A step that several attempts came to: which of them is shown.
function Attempts({ found, onChange }) {
  return html`<${Select} label="attempt" hidden=${false} value=${String(found.attempt)}
      onChange=${(text) => onChange(Number(text))}
    options=${found.attempts.map((each) => [
      String(each),
      each === found.attempts.at(-1) ? `${each}, newest` : String(each),
    ])} />`;
}

const isEmpty = (step) =>
  !Object.keys(step.samples).length &&
  !step.metrics.length &&
  !step.ranks.length &&
  !step.logs.length &&
  !step.alerts.length &&
  !step.open_spans.length;

// Findings about a step, in the hub's own sentences.
const ICONS = { alert: "flag", error: "close", crash: "close", dead_rank: "close" };

export function Findings({ step }) {
  return html`<section class="findings" aria-label="Findings">
    <ul>${
      step.findings.length
        ? step.findings.map(
            (
              each,
              at,
            ) => html`<li key=${at} class=${each.severity === "WARN" || each.severity === "INFO" ? "warn" : "bad"}>
      <${Icon} name=${ICONS[each.kind] || "warn"} /><span>${each.text}</span></li>`,
          )
        : step.complete
          ? html`<li class="good"><${Icon} name="check" />
          <span>Nothing unusual compared with the previous ${step.window} steps.</span></li>`
          : html`<li><span>Looking for problems…</span></li>`
    }</ul>
  </section>`;
}

// The nearest steps at which something was wrong: those that the step's answer tells, and those that findings name.
const CACHE_MS = 30000;
/** @type {{ run: string | null, until: number, found: Promise<any> }} */
let cached = { run: null, until: 0, found: Promise.resolve([]) };

// Findings are of the whole run and may take the hub a while: what was found just now is found again.
function findings(run) {
  if (cached.run !== run || cached.until < Date.now()) {
    const expire = () => {
      cached = { ...cached, until: 0 };
    };
    const found = get(runPath(run, "findings")).then((answer) => {
      if (!answer.complete) expire();
      return answer.findings;
    });
    cached = { run, until: Date.now() + CACHE_MS, found };
    found.catch(expire);
  }
  return cached.found;
}

// Returns [previous, next] of a step's answer, each { step, reason, attempt } or null.
function useAnomalies(run, now) {
  const named = useFetch(() => findings(run), [run, now?.complete === false]).value || [];
  if (!now) return [null, null];
  const places = named
    .filter(({ step, muted }) => step !== null && !muted)
    .map(({ step, kind, attempt }) => ({ step, reason: kind.replaceAll("_", " "), attempt }));
  const nearest = (reported, wanted) =>
    [reported, ...places]
      .filter((place) => place && wanted(place.step))
      .reduce(
        (best, place) => (best && Math.abs(best.step - now.step) <= Math.abs(place.step - now.step) ? best : place),
        null,
      );
  return [
    nearest(now.previous_anomaly, (step) => step < now.step),
    nearest(now.next_anomaly, (step) => step > now.step),
  ];
}
