// Spans found by name, duration, status, step and any attribute they carry; each opens its trace.
import { html, useMemo } from "../h.js";
import { get } from "../api.js";
import { go, href, useParam, useParams } from "../router.js";
import { useFetch, usePollWhileEmpty } from "../use.js";
import { Choice, Select } from "../parts/controls.js";
import { Attributes, attrParams, Field, instant, RunField, useRuns } from "../parts/fields.js";
import { clock, count, millis } from "../parts/format.js";
import { RunLink } from "../parts/run_names.js";
import { Empty, Failure, Loading } from "../parts/states.js";
import { VirtualTable } from "../parts/table.js";
import { RunBanner } from "../run/head.js";
import { spanColour } from "./colours.js";
import { Import } from "./details.js";

const LIMIT = 500;

export function SpanSearch() {
  const [run, setRun] = useParam("run"),
    [name, setName] = useParam("name"),
    [step, setStep] = useParam("step");
  const [least, setLeast] = useParam("min_ms"),
    [status, setStatus] = useParam("status"),
    [sort, setSort] = useParam("sort", "newest");
  const [attrs, setAttrs] = useParams("attr");
  const runs = useRuns();
  const facets = usePollWhileEmpty(
    useFetch((signal) => get("spans/facets", { run }, signal), [run]),
    ({ names }) => !names.length,
  );
  const found = usePollWhileEmpty(
    useFetch(
      (signal) =>
        get("spans", { run, name, step, min_ms: least, status, sort, limit: LIMIT, ...attrParams(attrs) }, signal),
      [run, name, step, least, status, sort, attrs.join("\n")],
    ),
    ({ spans }) => !spans.length,
  );
  const anything = run || name || step || least || status || attrs.length;
  const names = facets.value?.names || [];
  return html`<div class="page fill">
    <${RunBanner} id=${run} tab="traces" title="Traces">
      ${
        run &&
        step !== "" &&
        html`<a class="button" href=${href("traces", { run, at: step })}>Step ${step} on all ranks</a>`
      }
      <${Import} />
    <//>
    <div class="toolbar search-bar" role="group" aria-label="Search">
      <${RunField} value=${run} onChange=${setRun} runs=${runs.value} />
      <${Field} label="Name" value=${name} onChange=${setName} placeholder="any name" width="16em"
        suggestions=${names.map((each) => [each.name, `${count(each.count)} · ${millis(each.median_ms)}`])} />
      <${Field} label="Step" value=${step} onChange=${setStep} placeholder="any" width="6em" type="number" />
      <${Field} label="At least" value=${least} onChange=${setLeast} placeholder="0 ms" width="6em" type="number" />
      <${Select} label="Status" value=${status} options=${[
        ["", "any status"],
        ["error", "failed"],
        ["ok", "ok"],
        ["unset", "unset"],
      ]} onChange=${setStatus} />
      <${Attributes} values=${attrs} onChange=${setAttrs} names=${facets.value?.attrs} />
      <${Choice} label="Order" value=${sort} options=${[
        ["newest", "Newest"],
        ["slowest", "Slowest"],
      ]} onChange=${setSort} />
    </div>
    <div class="trace-found">
      <${Names} names=${names} chosen=${name} onChoose=${setName} loading=${facets.loading && !facets.value} />
      <${Found} found=${found} anything=${anything}
          question=${[run, name, step, least, status, sort, ...attrs].join("\n")} />
    </div>
  </div>`;
}

function Names({ names, chosen, onChoose, loading }) {
  return html`<nav class="trace-names panel" aria-label="Names of spans">
    <h2>Names</h2>
    ${
      loading
        ? html`<p class="muted">Counting…</p>`
        : !names.length
          ? html`<p class="muted">No spans yet.</p>`
          : html`<ul>${names.map(
              (each) => html`<li key=${each.name}>
      <button type="button" class=${each.name === chosen ? "on" : ""} aria-pressed=${String(each.name === chosen)}
          onClick=${() => onChoose(each.name === chosen ? "" : each.name)}>
        <span class="trace-word" title=${each.name}>${each.name}</span>
        ${each.errors > 0 && html`<span class="bad-text" title="failed">✕${count(each.errors, { brief: true })}</span>`}
        <span class="muted">${millis(each.median_ms)}</span>
          <span class="trace-many">${count(each.count, { brief: true })}</span></button>
        </li>`,
            )}</ul>`
    }
  </nav>`;
}

function Found({ found, anything, question }) {
  const spans = found.value?.spans;
  const longest = useMemo(() => Math.max(1e-9, ...(spans || []).map((span) => span.duration_ms || 0)), [spans]);
  if (found.error)
    return html`<div class="panel trace-table"><${Failure} error=${found.error} reload=${found.reload} /></div>`;
  if (!spans) return html`<div class="panel trace-table"><${Loading} what="Searching" /></div>`;
  if (!spans.length) {
    return html`<div class="panel trace-table"><${Empty} title=${anything ? "No spans match" : "No spans yet"}>${
      anything
        ? html`<button type="button" class="button" onClick=${() => go(href("traces"))}>Search all spans</button>`
        : html`Record some with <code>run.span("name")</code>, point any OpenTelemetry exporter at this hub, or import a trace file.`
    }<//></div>`;
  }
  const all = [
    {
      id: "time",
      title: "Start",
      width: "108px",
      cell: (span) =>
        html`<span class="muted" title=${clock(span.start, { exact: true })}>${instant(span.start)}</span>`,
    },
    {
      id: "name",
      title: "Name",
      width: "minmax(190px, 1.4fr)",
      cell: (span) => html`${span.status === "error" && html`<span class="bad-text" aria-label="failed">✕</span>`}
      <a href=${href("traces", { trace: span.trace_id, span: span.span_id })} title=${span.name}>${span.name}</a>`,
    },
    {
      id: "duration",
      title: "Duration",
      width: "minmax(150px, 1fr)",
      cell: (span) => html`<span class="trace-meter" aria-hidden="true">
      <span
          style=${{
            width: ((span.duration_ms || 0) / longest) * 100 + "%",
            background: span.status === "error" ? "var(--bad)" : spanColour(span.name),
          }}>
          </span>
      </span>
      <span class="trace-lasts">${millis(span.duration_ms)}</span>`,
    },
    {
      id: "step",
      title: "Step",
      width: "84px",
      align: "right",
      cell: (span) =>
        span.step === null
          ? html`<span class="muted">–</span>`
          : html`<a href=${href("run", span.run, { step: span.step, at: span.rank })}>${span.step}</a>`,
    },
    { id: "rank", title: "Rank", width: "60px", align: "right", cell: (span) => span.rank },
    { id: "run", title: "Run", width: "minmax(120px, 0.8fr)", cell: (span) => html`<${RunLink} id=${span.run} />` },
  ];
  const columns = innerWidth > 640 ? all : [all[1], all[2], all[3], all[0], all[4], all[5]];
  return html`<div class="trace-table">
    <${VirtualTable} label="Spans" columns=${columns} rows=${spans} keyOf=${(span) => span.trace_id + span.span_id}
        rowHeight=${28} question=${question}
      onOpen=${(span) => go(href("traces", { trace: span.trace_id, span: span.span_id }))} />
    <p class="table-foot">
      ${count(spans.length)} spans${found.value.next !== null ? `, more match: narrow the search` : ""}</p>
    </div>`;
}
