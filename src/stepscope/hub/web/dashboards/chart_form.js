// A form that adds a chart to the text of a dashboard.
import { html, useId, useState } from "../h.js";
import { get } from "../api.js";
import { useFetch } from "../use.js";
import { Menu } from "../parts/controls.js";
import { withItem } from "../parts/yaml_list.js";

export function ChartForm({ text, onText }) {
  return html`<${Menu} label="Add a chart" icon="plus" align="right">${(close) =>
    html`<${Fields} onAdd=${(fields) => {
      onText(withItem(text, "charts", fields));
      close();
    }} />`}<//>`;
}

function Fields({ onAdd }) {
  const [keys, setKeys] = useState(""),
    [title, setTitle] = useState(""),
    [expression, setExpression] = useState(""),
    [log, setLog] = useState(false),
    [wide, setWide] = useState(false);
  const fields = useFetch((signal) => get("fields", {}, signal), []);
  const list = useId();
  const wanted = keys
      .split(",")
      .map((each) => each.trim())
      .filter(Boolean),
    ready = wanted.length > 0 || expression.trim() !== "";
  // Not a form of its own: it stands within that of the dashboard.
  const add = () =>
    ready &&
    onAdd([
      ["title", title.trim() || undefined],
      ["keys", wanted.length ? wanted : undefined],
      ["expressions", expression.trim() ? [expression.trim()] : undefined],
      ["scale", log ? "log" : undefined],
      ["wide", wide || undefined],
    ]);
  const keyed = (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    add();
  };
  const field = (
    label,
    value,
    set,
    placeholder,
    more = {},
  ) => html`<label class="field"><span class="field-label">${label}</span>
    <input type="text" value=${value} placeholder=${placeholder} autocomplete="off" spellcheck=${false}
      onInput=${(event) => set(event.target.value)} onKeyDown=${keyed} ...${more} /></label>`;
  return html`<div class="add-form">
    ${field("Metrics", keys, setKeys, "trainer/loss, val/*", { list })}
    ${field("Expression", expression, setExpression, "{val/loss} - {trainer/loss}")}
    ${field("Title", title, setTitle, "")}
    <label><input type="checkbox" checked=${log} onChange=${(event) => setLog(event.target.checked)} /> Logarithmic y axis</label>
    <label><input type="checkbox" checked=${wide} onChange=${(event) => setWide(event.target.checked)} /> Both columns</label>
    <button type="button" class="button primary" disabled=${!ready} onClick=${add}>Add to the text</button>
    <datalist id=${list}>
      ${(fields.value?.metrics || []).slice(0, 500).map(({ name }) => html`<option key=${name} value=${name} />`)}
    </datalist>
  </div>`;
}
