// The head of a run's page: name, state, and findings, each a link to its step.
import { html, useState } from "../h.js";
import { May, useAccess } from "../access.js";
import { get, post, runPath } from "../api.js";
import { go, href } from "../router.js";
import { useFetch, useNow, usePollUntilComplete } from "../use.js";
import { Icon, Menu, Status } from "../parts/controls.js";
import { ago, clock, count, lasting, ordinal } from "../parts/format.js";
import { act } from "../parts/overlays.js";
import { StopButton, StopState, useControl } from "./control.js";
import { Share } from "../share/dialog.js";
import { Described, edit, Manage, Name } from "./edit.js";
import { isRateKnown, rate } from "../runs/sparks.js";

export function RunHead({ run, control, goodput, findings, reload, tab, setTab, onStep, live, onEdit }) {
  const now = useNow(run.status === "running" ? 1000 : 10000);
  const going = run.status === "running";
  const sampled = useSampled(run);
  const { limit } = useAccess();
  return html`<header class="run-head">
    <div class="run-title">
      ${
        limit === "run"
          ? html`<span class="muted">${run.project}</span>`
          : html`<a class="muted" href=${href("project", run.project)}>${run.project}</a>`
      }
        <span class="muted" aria-hidden="true">/</span>
      <${Name} run=${run} onEdit=${onEdit} />
      <${Status} run=${run} />
      ${
        going &&
        live &&
        html`<span class=${"live-sign " + live}
            title=${live === "lost" ? "Live stream lost; reconnecting" : "Live"}>
              ${live === "lost" ? "reconnecting" : "live"}</span>`
      }
      ${run.name && html`<code class="muted run-id">${run.id}</code>`}
      <span class="run-actions"><${StopButton} run=${run} control=${control} />
        <${Share} run=${run.id} name=${run.name || run.id} />
        <${Manage} run=${run} onEdit=${onEdit} /></span>
    </div>
    <${StopState} control=${control} />
    <${Described} run=${run} onEdit=${onEdit} />
    <dl class="facts">
      <${Fact} name="step">${ordinal(run.step)}<//>
      <${Fact} name="steps/s" hint="Over the whole run">
        ${isRateKnown(run, Boolean(goodput)) ? rate(run, goodput?.steps_per_second) : "…"}<//>
      <${Fact} name="duration">${lasting(run.duration)}<//>
      <${Fact} name=${going ? "last seen" : "ended"}>${going ? ago(run.seen, now) : clock(run.seen)}<//>
      <${Fact} name="ranks">${run.ranks}${run.world_size > run.ranks ? ` of ${run.world_size}` : ""}<//>
      <${Fact} name="attempts">${run.attempts}<//>
      <${Fact} name="points">${count(run.counts.points, { brief: true })}<//>
      <${Fact} name="spans">${count(run.counts.spans, { brief: true })}<//>
      <${Fact} name="logs">${count(run.counts.logs, { brief: true })}<//>
    </dl>
    <div class="run-row">
      <nav class="tabs" aria-label="Parts of this run">
        ${[
          ["diagnosis", "Diagnosis"],
          ["charts", "Charts"],
          ...(sampled || tab === "samples" ? [["samples", "Samples"]] : []),
          ["files", "Files"],
          ["overview", "Overview"],
        ].map(
          ([name, title]) => html`
          <button key=${name} type="button" aria-current=${tab === name ? "page" : undefined}
              onClick=${() => setTab(name)}>${title}</button>`,
        )}
        <a href=${href("traces", { run: run.id })} aria-current=${tab === "traces" ? "page" : undefined}>Traces</a>
        <a href=${href("logs", { run: run.id })} aria-current=${tab === "logs" ? "page" : undefined}>Logs</a>
        ${limit !== "run" && html`<a href=${href("compare", { run: [run.id] })}>Compare</a>`}
      </nav>
    </div>
    ${tab !== "diagnosis" && html`<${Findings} answer=${findings} reload=${reload} run=${run} onStep=${onStep} />`}
  </header>`;
}

// Whether a run has samples. They are stored as logs are: without any there is nothing to ask, and again when they double.
function useSampled({ id, counts: { logs } }) {
  const fetched = useFetch(
    (signal) => (logs ? get(runPath(id, "samples"), { limit: 1, chars: 1 }, signal) : Promise.resolve({ tables: [] })),
    [id, Math.floor(Math.log2(logs + 1))],
  );
  return Boolean(fetched.value?.tables.length);
}

function Fact({ name, hint, children }) {
  return html`<div title=${hint}><dt>${name}</dt><dd>${children}</dd></div>`;
}

// Findings, worst first, each a click from its step: one line, so that nothing moves when they arrive, or all of them
// with cause and advice. `answer` is the hub's; while it is not complete, how much has been diagnosed.
function Findings({ answer, reload, run, onStep }) {
  const [all, setAll] = useState(false);
  const { findings = [], complete = true, progress = 1 } = answer || {};
  if (!answer || (!complete && !findings.length)) {
    const done = answer ? ` ${Math.floor(100 * progress)} %` : "";
    return html`<p class="run-findings muted">Looking for problems…${done}</p>`;
  }
  if (!findings.length)
    return html`<p class="run-findings muted"><span class="good-text">✓</span> No problems found.</p>`;
  return html`<div class=${"run-findings" + (all ? " all" : "")}>
    <ul aria-label="Findings">
      ${findings.map(
        (each, at) => html`<li key=${at}>
          <button type="button" class=${"finding " + tone(each)} disabled=${each.step === null} title=${each.text}
              onClick=${() => onStep(each.step, each.rank, run.attempts > 1 ? each.attempt : null)}>
            <${Icon} name=${each.muted ? "check" : each.severity === "WARN" || each.severity === "INFO" ? "warn" : "flag"} size=${13} />
            <span>${each.text}${all && html`<${Explained} finding=${each} />`}</span>
          </button>
          ${all && !each.muted && html`<${Expect} finding=${each} run=${run} reload=${reload} />`}
        </li>`,
      )}
    </ul>
    ${
      (findings.length > 1 || findings[0].advice) &&
      html`<button type="button" class="finding more" aria-expanded=${String(all)} onClick=${() => setAll(!all)}>
      ${all ? "Collapse" : findings.length > 1 ? `Show all ${count(findings.length)}` : "Show more"}</button>`
    }
  </div>`;
}

// Marks similar findings as expected, in the run or in its project.
export function Expect({ finding: { kind, key, span }, run, reload }) {
  const mark = (project) =>
    act(() => post(runPath(run.id, "findings/expected"), { kind, key, span, project }), "Marked as expected.", reload);
  return html`<${May}><${Menu} label="Expected" title="Not a fault: similar findings are not counted and send no notifications">
    ${(close) =>
      [false, true].map(
        (project) =>
          html`<button type="button" key=${project} class="item" onClick=${() => {
            close();
            mark(project);
          }}>${project ? `in project ${run.project}` : "in this run"}</button>`,
      )}<//><//>`;
}

const SYMPTOMS = 3;

// What was expected, the likely cause of a finding, what to do, and what else was seen with it.
function Explained({ finding: { band, cause, advice, next, symptoms = [], muted } }) {
  if (muted) return html`<small>${muted}</small>`;
  const more = symptoms.length > SYMPTOMS ? `, and ${count(symptoms.length - SYMPTOMS)} more` : "";
  return html`<small>${[band, cause && `Likely cause: ${cause}`, advice, next && `Next: ${next}`].filter(Boolean).join(". ")}</small>
    ${symptoms.length > 0 && html`<small>Also: ${symptoms.slice(0, SYMPTOMS).join("; ")}${more}.</small>`}`;
}

export const tone = ({ muted, severity }) => (muted ? "quiet" : /^(ERROR|FATAL)/.test(severity) ? "bad" : "warn");

// The head of a run over the views that are its tabs, Traces and Logs; without a run, or with an unknown one, the title of the view.
// `children` are the actions of the view.
export function RunBanner({ id, tab, title, children }) {
  const plain = html`<h1>${title}</h1>`;
  return html`${id ? html`<${Banner} key=${id} id=${id} tab=${tab} title=${title} />` : null}
    <div class="page-head">${id ? null : plain}<span class="grow"></span>${children}</div>`;
}

function Banner({ id, tab, title }) {
  const run = useFetch((signal) => get(runPath(id), {}, signal), [id]);
  const findings = useFetch((signal) => get(runPath(id, "findings"), {}, signal), [id]);
  usePollUntilComplete(findings);
  const goodput = useFetch((signal) => get(runPath(id, "goodput"), {}, signal), [id]);
  const control = useControl(run.value);
  if (!run.value) return html`<h1>${title}</h1>`;
  const onEdited = (now) => run.set((old) => old && { ...old, ...now, values: old.values });
  const open = (step, at, attempt) => go(href("run", id, { step, at, attempt }));
  return html`<${RunHead} run=${run.value} control=${control} goodput=${goodput.value}
    findings=${findings.value} reload=${findings.reload} tab=${tab} live=""
    setTab=${(name) => go(href("run", id, { tab: name }))} onStep=${open}
    onEdit=${(wanted, words) => edit(run.value, wanted, words, onEdited)} />`;
}
