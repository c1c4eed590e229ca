// Which columns the table has.
import { html, useState } from "../h.js";
import { count } from "../parts/format.js";
import { FIXED } from "./columns.js";

export function Chooser({ chosen, fields, onChange, onReset }) {
  const [search, setSearch] = useState("");
  const fits = (name) => name.toLowerCase().includes(search.toLowerCase());
  const toggle = (id) => onChange(chosen.includes(id) ? chosen.filter((each) => each !== id) : placed(chosen, id));
  const group = (title, list) =>
    list.length > 0 &&
    html`<h3>${title}</h3>${list.slice(0, 80).map(
      ([id, text, hint]) => html`<label key=${id}>
    <input type="checkbox" checked=${chosen.includes(id)} disabled=${id === "name"} onChange=${() => toggle(id)} />
      <span class="wide-name" title=${text}>${text}</span><span class="muted">${hint}</span></label>`,
    )}`;
  return html`<div class="chooser">
    <input type="search" aria-label="Find a column" placeholder="Find a column" value=${search}
        onInput=${(event) => setSearch(event.target.value)} />
    ${group(
      "Run",
      Object.entries(FIXED)
        .filter(([, each]) => fits(each.title))
        .map(([id, each]) => [id, each.title, ""]),
    )}
    ${group(
      "Metrics",
      fields.metrics.filter(({ name }) => fits(name)).map(({ name, runs }) => ["metrics." + name, name, count(runs)]),
    )}
    ${group(
      "Configuration",
      fields.config.filter(({ name }) => fits(name)).map(({ name, runs }) => ["config." + name, name, count(runs)]),
    )}
    <button type="button" class="item" onClick=${onReset}>As it was</button></div>`;
}

// A metric goes beside the other metrics, anything else to the end.
function placed(chosen, id) {
  if (!id.startsWith("metrics.")) return [...chosen, id];
  const at =
    Math.max(
      chosen.findLastIndex((each) => each.startsWith("metrics.")),
      chosen.indexOf("rate"),
      chosen.indexOf("step"),
      0,
    ) + 1;
  return [...chosen.slice(0, at), id, ...chosen.slice(at)];
}
