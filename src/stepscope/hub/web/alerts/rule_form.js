// A form that adds a rule to the text of the page's rules.
import { html, useId, useState } from "../h.js";
import { get } from "../api.js";
import { useFetch } from "../use.js";
import { Menu } from "../parts/controls.js";
import { withItem } from "../parts/yaml_list.js";

const CONDITIONS = [
  [">", "is above"],
  ["<", "is below"],
  ["not finite", "is not finite"],
];
const SEVERITIES = ["WARN", "ERROR", "FATAL"];

// With a `metric` the form is open and has it.
export function RuleForm({ text, onText, metric = "" }) {
  return html`<${Menu} label="Add a rule" icon="plus" align="right" opened=${metric !== ""}>${(close) =>
    html`<${Fields} metric=${metric} onAdd=${(fields) => {
      onText(withItem(text, "rules", fields));
      close();
    }} />`}<//>`;
}

function Fields({ onAdd, metric }) {
  const [key, setKey] = useState(metric),
    [sign, setSign] = useState(">"),
    [limit, setLimit] = useState(""),
    [steps, setSteps] = useState(""),
    [severity, setSeverity] = useState("WARN");
  const fields = useFetch((signal) => get("fields", {}, signal), []);
  const list = useId();
  const compares = sign !== "not finite",
    isNumber = limit.trim() !== "" && Number.isFinite(Number(limit)),
    isCount = steps.trim() === "" || /^[1-9]\d*$/.test(steps.trim()),
    ready = key.trim() !== "" && (!compares || isNumber) && isCount;
  const words = CONDITIONS.find(([each]) => each === sign)?.[1] ?? "";
  const add = (event) => {
    event.preventDefault();
    if (!ready) return;
    onAdd([
      ["name", `${key.trim()} ${words}${compares ? ` ${limit.trim()}` : ""}`],
      ["key", key.trim()],
      ["when", compares ? `${sign} ${limit.trim()}` : sign],
      ["for", steps.trim() ? `${steps.trim()} steps` : undefined],
      ["severity", severity],
    ]);
  };
  const options = (all, value) =>
    all.map(([each, text]) => html`<option key=${each} value=${each} selected=${each === value}>${text}</option>`);
  return html`<form class="add-form" onSubmit=${add}>
    <label class="field"><span class="field-label">Metric</span><input type="text" list=${list} value=${key} placeholder="trainer/loss"
      autocomplete="off" spellcheck=${false} onInput=${(event) => setKey(event.target.value)} /></label>
    <label class="field"><span class="field-label">Condition</span><select value=${sign}
      onChange=${(event) => setSign(event.target.value)}>${options(CONDITIONS, sign)}</select></label>
    ${
      compares &&
      html`<label class="field"><span class="field-label">Limit</span><input type="text" inputmode="decimal" value=${limit}
        onInput=${(event) => setLimit(event.target.value)} /></label>`
    }
    <label class="field"><span class="field-label">For so many steps</span><input type="text" inputmode="numeric" value=${steps}
      placeholder="at once" onInput=${(event) => setSteps(event.target.value)} /></label>
    <label class="field"><span class="field-label">Severity</span><select value=${severity}
      onChange=${(event) => setSeverity(event.target.value)}>${options(
        SEVERITIES.map((each) => [each, each]),
        severity,
      )}</select></label>
    <button type="submit" class="button primary" disabled=${!ready}>Add to the text</button>
    <datalist id=${list}>
      ${(fields.value?.metrics || []).slice(0, 500).map(({ name }) => html`<option key=${name} value=${name} />`)}
    </datalist>
  </form>`;
}
