// One span: duration, attributes, events, logs, and links to its step, run and neighbours.
import { html, useRef, useState } from "../h.js";
import { useAccess } from "../access.js";
import { address, fetchJson, get } from "../api.js";
import { go, href } from "../router.js";
import { useFetch } from "../use.js";
import { IconButton, Menu, Severity } from "../parts/controls.js";
import { AttributeTable, instant } from "../parts/fields.js";
import { count, millis, percent, plain } from "../parts/format.js";
import { RunLink } from "../parts/run_names.js";
import { Failure } from "../parts/states.js";
import { laneTitle } from "./model.js";

export function Details({ trace, i, onClose, onSelect }) {
  const lane = trace.lanes[trace.lane[i]],
    lasts = trace.end[i] - trace.start[i];
  const traceId = trace.traces[trace.traceOf[i]],
    spanId = trace.id[i],
    step = trace.step[i];
  const fetched = useFetch(
    async (signal) => {
      const [spans, logs] = await Promise.all([
        get("spans", { run: lane.run, trace_id: traceId, span_id: spanId, step, limit: 1 }, signal),
        get("logs", { run: lane.run, trace_id: traceId, span_id: spanId, sort: "oldest", limit: 100 }, signal),
      ]);
      return { span: spans.spans[0] || null, logs: logs.logs, id: spanId };
    },
    [traceId, spanId],
  );
  const known = fetched.value?.id === spanId ? fetched.value : null;
  return html`<section class="trace-details" aria-label="Selected span">
    <header><h2>${trace.names[trace.name[i]]}</h2><${IconButton} icon="close" label="Close" onClick=${onClose} />
    </header>
    <div class="trace-details-body" tabindex="0">
      ${
        trace.status[i] === 2 &&
        html`<p class="trace-failed">✕ failed${known?.span?.message ? `: ${known.span.message}` : ""}</p>`
      }
      <dl class="trace-facts">
        <${Fact} name="Duration" value=${trace.open[i] ? "still open" : millis(lasts)} />
        <${Fact} name="Self time" value=${millis(trace.self[i])} more=${share(trace.self[i], lasts)} />
        <${Fact} name="Critical path" value=${millis(trace.critical[i])} more=${share(trace.critical[i], trace.total)} />
        <${Fact} name="Start" value=${"+" + millis(trace.start[i])} />
        <${Fact} name="Lane" value=${laneTitle(lane, trace.lanes)} />
        <${Fact} name="Run" value=${html`<${RunLink} id=${lane.run} />`} />
        ${
          step !== null &&
          html`<${Fact} name="Step"
              value=${html`<a href=${href("run", lane.run, { step, at: lane.rank })}>${step}</a>`} />`
        }
        ${trace.size[i] > 1 && html`<${Fact} name="Inside" value=${`${count(trace.size[i] - 1)} spans`} />`}
        ${
          trace.parent[i] >= 0 &&
          html`<${Fact} name="Parent"
              value=${html`<button type="button" class="link" onClick=${() => onSelect(trace.parent[i])}>
          ${trace.names[trace.name[trace.parent[i]]]}</button>`} />`
        }
      </dl>
      ${fetched.error && html`<${Failure} error=${fetched.error} reload=${fetched.reload} />`}
      ${
        known
          ? html`<${Known} known=${known} run=${lane.run} begin=${trace.begin} />`
          : !fetched.error && html`<p class="muted">Loading attributes…</p>`
      }
      <p class="trace-ids"><span>trace</span> <code>${traceId}</code><br /><span>span</span> <code>${spanId}</code></p>
    </div>
  </section>`;
}

const share = (part, all) => (all > 0 ? percent(part / all) : "");

function Fact({ name, value, more }) {
  return html`<div><dt>${name}</dt><dd>${value}${more && html`<span class="muted"> ${more}</span>`}</dd></div>`;
}

function Known({ known, run, begin }) {
  const { span, logs } = known;
  return html`
    <h3>Attributes</h3>
    <${AttributeTable} attrs=${span?.attrs} view="traces" run=${run} title="Find spans with this value"
      none=${span ? undefined : "Attributes are recorded when the span ends."} />
    ${
      span?.events?.length > 0 &&
      html`<h3>Events</h3><ul class="trace-events">${span.events.map(
        (event, at) => html`<li key=${at}>
      <span class="muted">+${millis((event.time - begin) * 1000)}</span> ${event.name} <code>
        ${Object.keys(event.attrs).length ? plain(event.attrs) : ""}</code>
      </li>`,
      )}</ul>`
    }
    ${
      span?.links?.length > 0 &&
      html`<h3>Links</h3><ul class="trace-events">${span.links.map(
        (link) => html`<li key=${link.span_id}>
      <a
          href=${href("traces", { trace: link.trace_id, span: link.span_id })}>
            <code>${link.trace_id.slice(0, 16)}…</code></a>
      </li>`,
      )}</ul>`
    }
    <h3>Logs</h3>
    ${
      logs.length
        ? html`<ul class="trace-logs">${logs.map(
            (log, at) => html`<li key=${at}>
        <${Severity} severity=${log.severity} />
          <span class="muted">${instant(log.time)}</span> <span>${log.name ? html`<b>${log.name}</b> ` : ""}
            ${plain(log.body ?? "")}</span>
        </li>`,
          )}</ul>`
        : html`<p class="muted">No logs.</p>`
    }`;
}

// Traces as files: in from OTLP or Chrome JSON, out to either.
export function Import() {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  const [state, setState] = useState(/** @type {{ text: string, bad?: boolean } | null} */ (null));
  const bring = async (file) => {
    setState({ text: `Reading ${file.name}…` });
    try {
      const run = file.name
        .replace(/\.gz$/, "")
        .replace(/\.json$/, "")
        .replace(/\.(pt\.trace|chrome|otlp)$/, "");
      const answer = await fetchJson(address("spans/import", { run }), {
        method: "POST",
        body: file,
        headers: { "Content-Type": "application/json" },
      });
      setState({ text: importSummary(answer) });
      if (answer.traces.length) await openWhenStored(answer, setState);
    } catch (error) {
      setState({ text: error.message, bad: true });
    }
  };
  if (!useAccess().may("admin")) return null;
  return html`<span class="trace-import">
    ${
      state &&
      html`<span class=${state.bad ? "bad-text" : "muted"} role=${state.bad ? "alert" : "status"}>${state.text}</span>`
    }
    <button type="button" class="button" onClick=${() => input.current?.click()}
        title="OTLP JSON, Chrome or Perfetto JSON, PyTorch profiler, also .gz">Import a trace</button>
    <input ref=${input} type="file" accept=".json,.gz,.jsonl,application/json" class="sr" tabindex="-1"
        aria-label="A trace file"
      onChange=${(event) => {
        const [file] = event.target.files;
        if (file) bring(file);
        event.target.value = "";
      }} />
  </span>`;
}

function importSummary(answer) {
  const refused = Object.values(answer.rejected).reduce((all, each) => all + each, 0);
  const known = answer.already ? `, ${count(answer.already)} already stored` : "";
  return `${count(answer.spans)} spans imported${known}${refused ? `, ${count(refused)} refused` : ""}`;
}

// Imported spans are stored a moment later: open the trace once it is there, or the step with all ranks.
async function openWhenStored({ traces: [trace, ...others], steps }, notify) {
  const [{ run, first_step: at, last_step: last } = {}] = others.length && steps.length === 1 ? steps : [];
  for (let turn = 0; turn < 60; turn++) {
    const answer = await fetchJson(address("spans", { trace_id: trace, limit: 1 }));
    if (answer.spans.length) return go(href("traces", run ? { run, at, last } : { trace }));
    await new Promise((done) => setTimeout(done, 250));
  }
  return notify({ text: "Imported, but not stored yet; search for it in a moment." });
}

export function Export({ picked }) {
  const link = (format) => address("spans/export", { ...picked, format });
  return html`<${Menu} label="Export" align="right">${(close) => html`
    <a class="item" href=${link("otlp")} download onClick=${close}>OTLP JSON</a>
    <a class="item" href=${link("chrome")} download onClick=${close}>Chrome / Perfetto JSON</a>`}
  <//>`;
}
