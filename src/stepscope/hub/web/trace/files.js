// Traces as files: in from OTLP or Chrome JSON, out to either.
import { html, useRef, useState } from "../h.js";
import { ask, address } from "../api.js";
import { go, href } from "../router.js";
import { Menu } from "../parts/toolbar.js";
import { count } from "../parts/format.js";

export function Import() {
  const input = useRef(null);
  const [state, setState] = useState(null);
  const bring = async (file) => {
    setState({ text: `Reading ${file.name}…` });
    try {
      const run = file.name
        .replace(/\.gz$/, "")
        .replace(/\.json$/, "")
        .replace(/\.(pt\.trace|chrome|otlp)$/, "");
      const answer = await ask(address("spans/import", { run }), {
        method: "POST",
        body: file,
        headers: { "Content-Type": "application/json" },
      });
      setState({ text: said(answer) });
      if (answer.traces.length) await seen(answer, setState);
    } catch (error) {
      setState({ text: error.message, bad: true });
    }
  };
  return html`<span class="trace-import">
    ${
      state &&
      html`<span class=${state.bad ? "bad-text" : "muted"} role=${state.bad ? "alert" : "status"}>${state.text}</span>`
    }
    <button type="button" class="button" onClick=${() => input.current.click()}
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

function said(answer) {
  const refused = Object.values(answer.rejected).reduce((all, each) => all + each, 0);
  const known = answer.already ? `, ${count(answer.already)} already stored` : "";
  return `${count(answer.spans)} spans imported${known}${refused ? `, ${count(refused)} refused` : ""}`;
}

// What was taken is stored a moment later: open the trace once it is there, or the steps, where the traces of ranks are side by side.
async function seen({ traces: [trace, ...others], steps }, tell) {
  const [{ run, first_step: at, last_step: last } = {}] = others.length && steps.length === 1 ? steps : [];
  for (let turn = 0; turn < 60; turn++) {
    const answer = await ask(address("spans", { trace_id: trace, limit: 1 }));
    if (answer.spans.length) return go(href("traces", run ? { run, at, last } : { trace }));
    await new Promise((done) => setTimeout(done, 250));
  }
  return tell({ text: "It is taken and not stored yet: search for it in a moment." });
}

export function Export({ picked }) {
  const link = (format) => address("spans/export", { ...picked, format });
  return html`<${Menu} label="Export" align="right">${(close) => html`
    <a class="item" href=${link("otlp")} download onClick=${close}>OTLP JSON</a>
    <a class="item" href=${link("chrome")} download onClick=${close}>Chrome / Perfetto JSON</a>`}
  <//>`;
}
