// Fields that searches share: a run, a text with suggestions, a number, attributes as key=value.
import { html, useEffect, useId, useState } from "../h.js";
import { get } from "../api.js";
import { href } from "../router.js";
import { useFetch, usePollWhileEmpty } from "../use.js";
import { Icon } from "./controls.js";
import { spelled } from "./exact.js";
import { plain } from "./format.js";
import { useRunName } from "./run_names.js";

// A field that reports its value on blur, on Enter, or when a suggestion is chosen; `suggestions` are [value, text?].
export function Field({ label, value, onChange, placeholder, suggestions, width = "12em", type = "text", mono, hint }) {
  const [text, setText] = useState(value);
  const list = useId();
  useEffect(() => setText(value), [value]);
  const settle = (next) => {
    if (next !== value) onChange(next);
  };
  const typed = (event) => {
    const next = event.target.value;
    setText(next);
    // Taking a suggestion is no typing: browsers tell so.
    if (event.inputType === "insertReplacementText" || event.inputType === undefined) settle(next.trim());
  };
  return html`<label class="field" title=${hint}><span class="field-label">${label}</span>
    <input type=${type} value=${text} placeholder=${placeholder} list=${suggestions ? list : undefined}
        style=${{ width }} spellcheck=${false} autocomplete="off"
      class=${mono ? "mono" : ""} inputmode=${type === "number" ? "decimal" : undefined} onInput=${typed}
          onBlur=${() => settle(text.trim())}
      onKeyDown=${(event) => {
        if (event.key === "Enter") settle(text.trim());
        else if (event.key === "Escape") {
          setText(value);
          event.target.blur();
        }
      }} />
    ${
      suggestions &&
      html`<datalist id=${list}>
        ${suggestions.map(([each, label]) => html`<option key=${each} value=${each}>${label}</option>`)}</datalist>`
    }
  </label>`;
}

// The newest runs, for fields and defaults; a first one is noticed.
export function useRuns(limit = 200) {
  return usePollWhileEmpty(
    useFetch((signal) => get("runs", { limit, sort: "-seen" }, signal).then((answer) => answer.runs), [limit]),
    (runs) => !runs.length,
  );
}

// A run by its name, or by its id where the name is not unique; `value` is the id.
export function RunField({ value, onChange, runs, empty = "all runs" }) {
  const known = runs || [],
    name = useRunName(value);
  const named = (text) => known.filter((run) => run.name === text);
  const shown = (run) => (run.name && named(run.name).length === 1 ? run.name : run.id);
  const suggestions = known.map((run) => [shown(run), [run.name, run.project, run.status].filter(Boolean).join(" · ")]);
  const chosen = (text) => (named(text).length === 1 ? named(text)[0].id : text);
  return html`<${Field} label="Run" value=${named(name).length > 1 ? value : name} hint=${value}
      onChange=${(text) => onChange(chosen(text))} placeholder=${empty} suggestions=${suggestions} width="15em" />`;
}

// Conditions on attributes as chips, and a field that adds one.
export function Attributes({ values, onChange, names }) {
  const add = (text) => {
    if (/^[^=]+=/.test(text)) onChange([...values.filter((each) => each !== text), text]);
  };
  const suggestions = (names || []).map((each) => [each.name + "=", `${each.count}`]);
  return html`<span class="attributes">
    ${values.map(
      (each) => html`<button type="button" class="chip accent attribute" key=${each}
          onClick=${() => onChange(values.filter((other) => other !== each))}
      aria-label=${`Remove ${each}`} title="Remove">${each}<${Icon} name="close" size=${9} /></button>`,
    )}
    <${Adder} onAdd=${add} suggestions=${suggestions} />
  </span>`;
}

function Adder({ onAdd, suggestions }) {
  const [text, setText] = useState("");
  const list = useId();
  const bad = text !== "" && !text.includes("=");
  const put = () => {
    if (text.trim() && !bad) {
      onAdd(text.trim());
      setText("");
    }
  };
  return html`<label class="field"><span class="field-label">Attribute</span>
    <input value=${text} placeholder="key=value" list=${list} class="mono" style=${{ width: "14em" }}
        spellcheck=${false} autocomplete="off"
      title="Write key=value and press Enter" onInput=${(event) => setText(event.target.value)}
          onBlur=${() => /=./.test(text) && put()}
      onKeyDown=${(event) => {
        if (event.key === "Enter") {
          event.preventDefault();
          put();
        }
      }} />
    <datalist id=${list}>
      ${suggestions.map(([each, label]) => html`<option key=${each} value=${each}>${label}</option>`)}</datalist>
    </label>`;
}

// The parameters of a question for conditions `key=value`.
export const attrParams = (values) =>
  Object.fromEntries(
    values.map((each) => {
      const at = each.indexOf("=");
      return [`attr.${each.slice(0, at)}`, each.slice(at + 1)];
    }),
  );

// Times to the millisecond, with the date when it is not today.
const two = (n) => String(n).padStart(2, "0");

export function instant(time) {
  if (!time) return "–";
  const at = new Date(time * 1000);
  const hour = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  if (at.toDateString() !== new Date().toDateString()) return `${two(at.getMonth() + 1)}-${two(at.getDate())} ${hour}`;
  return `${hour}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

// The attributes of a record; each name links to a search for its value in `view`.
export function AttributeTable({ attrs, view, run, title, none = "No attributes." }) {
  const rows = Object.entries(attrs || {});
  if (!rows.length) return html`<p class="muted">${none}</p>`;
  const link = (key, value) =>
    html`<a href=${href(view, { run, attr: `${key}=${spelled(value)}` })} title=${title}>${key}</a>`;
  return html`<table class="plain trace-attrs"><tbody>${rows.map(
    ([key, value]) => html`<tr key=${key}><th scope="row">${value === null ? key : link(key, value)}</th>
      <td><code>${plain(value)}</code></td></tr>`,
  )}</tbody></table>`;
}
