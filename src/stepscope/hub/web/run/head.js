// The head of a run's page: who it is, how it fares, and what went wrong, each a click from its step.
import { html, useState } from "../h.js";
import { href } from "../router.js";
import { ago, clock, count, lasting, ordinal } from "../parts/format.js";
import { Icon } from "../parts/icons.js";
import { Status } from "../parts/toolbar.js";
import { rate } from "../runs/rates.js";
import { useNow } from "../use.js";
import { Described, Manage, Name } from "./edit.js";

export function RunHead({ run, goodput, findings, tab, setTab, onStep, live, onEdit }) {
  const now = useNow(run.status === "running" ? 1000 : 10000);
  const going = run.status === "running";
  return html`<header class="run-head">
    <div class="run-title">
      <a class="muted" href=${href("runs", { filter: `project = ${quoted(run.project)}` })}>${run.project}</a>
        <span class="muted" aria-hidden="true">/</span>
      <${Name} run=${run} onEdit=${onEdit} />
      <${Status} run=${run} />
      ${
        going &&
        live &&
        html`<span class=${"live-sign " + live}
            title=${live === "lost" ? "The stream is lost; coming back" : "Live"}>
              ${live === "lost" ? "reconnecting" : "live"}</span>`
      }
      ${run.name && html`<code class="muted run-id">${run.id}</code>`}
      <${Manage} run=${run} onEdit=${onEdit} />
    </div>
    <${Described} run=${run} onEdit=${onEdit} />
    <dl class="facts">
      <${Fact} name="step">${ordinal(run.step)}<//>
      <${Fact} name="steps/s" hint="Over the whole run">${rate(run, goodput?.steps_per_second)}<//>
      <${Fact} name="duration">${lasting(run.duration)}<//>
      <${Fact} name=${going ? "last heard" : "ended"}>${going ? ago(run.seen, now) : clock(run.seen)}<//>
      <${Fact} name="ranks">${run.ranks}${run.world_size > run.ranks ? ` of ${run.world_size}` : ""}<//>
      <${Fact} name="attempts">${run.attempts}<//>
      <${Fact} name="points">${count(run.counts.points, { brief: true })}<//>
      <${Fact} name="spans">${count(run.counts.spans, { brief: true })}<//>
      <${Fact} name="logs">${count(run.counts.logs, { brief: true })}<//>
    </dl>
    <div class="run-row">
      <nav class="tabs" aria-label="Parts of this run">
        ${[
          ["charts", "Charts"],
          ["overview", "Overview"],
        ].map(
          ([name, title]) => html`
          <button key=${name} type="button" aria-current=${tab === name ? "page" : undefined}
              onClick=${() => setTab(name)}>${title}</button>`,
        )}
        <a href=${href("traces", { run: run.id })} aria-current=${tab === "traces" ? "page" : undefined}>Traces</a>
        <a href=${href("logs", { run: run.id })} aria-current=${tab === "logs" ? "page" : undefined}>Logs</a>
        <a href=${href("compare", { run: [run.id] })}>Compare</a>
      </nav>
    </div>
    <${Findings} findings=${findings} attempts=${run.attempts} onStep=${onStep} />
  </header>`;
}

function Fact({ name, hint, children }) {
  return html`<div title=${hint}><dt>${name}</dt><dd>${children}</dd></div>`;
}

// What went wrong, worst first, each a click from its step: one line, so that nothing moves when it comes, or all of it.
function Findings({ findings, attempts, onStep }) {
  const [all, setAll] = useState(false);
  if (findings === undefined) return html`<p class="run-findings muted">Looking for what went wrong…</p>`;
  if (!findings.length)
    return html`<p class="run-findings muted"><span class="good-text">✓</span> Nothing stands out in this run.</p>`;
  return html`<div class=${"run-findings" + (all ? " all" : "")}>
    <ul aria-label="What went wrong">
      ${findings.map(
        (
          each,
          at,
        ) => html`<li key=${at}><button type="button" class=${"finding " + tone(each)} disabled=${each.step === null}
        title=${each.text} onClick=${() => onStep(each.step, each.rank, attempts > 1 ? each.attempt : null)}>
        <${Icon} name=${each.severity === "WARN" ? "warn" : "flag"} size=${13} /><span>${each.text}</span></button>
        </li>`,
      )}
    </ul>
    ${
      findings.length > 1 &&
      html`<button type="button" class="finding more" aria-expanded=${String(all)} onClick=${() => setAll(!all)}>
      ${all ? "Collapse" : `Show all ${count(findings.length)}`}</button>`
    }
  </div>`;
}

const tone = (finding) => (/^(ERROR|FATAL)/.test(finding.severity) ? "bad" : "warn");
export const quoted = (text) => (/^[\w.-]+$/.test(text) ? text : JSON.stringify(text));
