// Add a run to a comparison: type a part of its name.
import { html, useState } from "../h.js";
import { get } from "../api.js";
import { useAsk, useSettled } from "../use.js";
import { Menu, Status } from "../parts/toolbar.js";
import { ago } from "../parts/format.js";

export function Adder({ taken, onAdd }) {
  return html`<${Menu} label="Add a run">${(close) =>
    html`<${Choices} taken=${taken} onAdd=${(id) => {
      close();
      onAdd(id);
    }} />`}<//>`;
}

function Choices({ taken, onAdd }) {
  const [text, setText] = useState("");
  const wanted = useSettled(text, 150);
  const asked = useAsk(
    (signal) =>
      get(
        "runs",
        { limit: 30, filter: wanted ? `name ~ ${JSON.stringify(wanted)} or id ~ ${JSON.stringify(wanted)}` : "" },
        signal,
      ),
    [wanted],
  );
  const runs = (asked.value?.runs || []).filter((run) => !taken.includes(run.id));
  return html`<div class="chooser">
    <input type="search" aria-label="Find a run" placeholder="Find a run" value=${text}
        onInput=${(event) => setText(event.target.value)} />
    ${runs.map(
      (run) =>
        html`<button key=${run.id} type="button" class="item"
            onClick=${() => onAdd(run.id)}><${Status} run=${run} />
              <span class="wide-name" title=${run.name || run.id}>${run.name || run.id}</span>
              <span class="muted">${ago(run.started)}</span></button>`,
    )}
    ${asked.value && !runs.length && html`<p class="muted note-line">No other run.</p>`}</div>`;
}
