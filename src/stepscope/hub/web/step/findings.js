// What was unusual about a step, in the hub's own sentences.
import { html } from "../h.js";
import { Icon } from "../parts/icons.js";

const ICONS = { alert: "flag", value: "warn", error: "close", slow_step: "warn" };

export function Findings({ step }) {
  return html`<section class="findings" aria-label="What was unusual">
    <ul>${
      step.findings.length
        ? step.findings.map(
            (each, at) => html`<li key=${at} class=${each.severity === "WARN" ? "warn" : "bad"}>
      <${Icon} name=${ICONS[each.kind]} /><span>${each.text}</span></li>`,
          )
        : html`<li class="good"><${Icon} name="check" />
          <span>Nothing unusual against the ${step.window} steps before.</span></li>`
    }</ul>
  </section>`;
}
