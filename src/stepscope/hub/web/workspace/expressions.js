// Expressions of metrics in the charts of a workspace: a form that adds one, and the list of those there are.
import { html, useState } from "../h.js";
import { get } from "../api.js";
import { IconButton, Menu } from "../parts/controls.js";

const SIGN = "="; // before the expression, where lines of metrics are kept by key

/** The key under which a chart of an expression is known. */
export const expressionKey = (text) => SIGN + text;

/**
 * What a chart asks the hub for: a metric or an expression.
 * @param {string} key
 */
export const askedOf = (key) => (key.startsWith(SIGN) ? { expression: key.slice(SIGN.length) } : { key });

/** The name of a chart. */
export const titleOf = (key) => (key.startsWith(SIGN) ? key.slice(SIGN.length) : key);

export function Expressions({ list, runs, onChange }) {
  return html`<${Menu} label=${list.length ? `Expressions ${list.length}` : "Expression"} icon="plus"
      title="A chart of metrics added, divided and so on">
    <${Form} list=${list} run=${runs[0]?.id} onChange=${onChange} /><//>`;
}

function Form({ list, run, onChange }) {
  const [text, setText] = useState(""),
    [problem, setProblem] = useState("");
  // The hub reads it as it will for the chart, so that what is wrong is said here.
  const add = async (event) => {
    event.preventDefault();
    const wanted = text.trim();
    if (!wanted || list.includes(wanted)) return;
    try {
      await get("series", { run: run ?? "-", expression: wanted, points: 1 });
      onChange([...list, wanted]);
      setText("");
      setProblem("");
    } catch (error) {
      setProblem(error.message);
    }
  };
  return html`<form class="expressions" onSubmit=${add}>
    <label class="field"><span class="field-label">Expression of metrics</span>
      <input class="mono" value=${text} placeholder="{val/loss} - {train/loss}" spellcheck=${false} autocomplete="off"
        aria-invalid=${problem ? "true" : undefined} aria-describedby="expression-help"
        onInput=${(event) => {
          setText(event.target.value);
          setProblem("");
        }} /></label>
    <p class="muted" id="expression-help">Metrics in braces, numbers, <code>+ - * / ^</code>, parentheses,${" "}
      <code>log log2 log10 exp sqrt abs</code>.</p>
    ${problem && html`<p class="bad-text" role="alert">${problem}</p>`}
    <button type="submit" class="button primary" disabled=${!text.trim()}>Add a chart</button>
    ${
      list.length > 0 &&
      html`<ul class="expressions-list">${list.map(
        (each) => html`<li key=${each}><code title=${each}>${each}</code>
        <${IconButton} icon="close" label=${`Remove ${each}`} onClick=${() => onChange(list.filter((one) => one !== each))} /></li>`,
      )}</ul>`
    }
  </form>`;
}
