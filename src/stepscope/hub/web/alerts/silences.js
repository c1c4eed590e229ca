// What nobody is notified of: silences with an end, and what people marked as expected.
import { html } from "../h.js";
import { address, ask, get } from "../api.js";
import { useAsk, useNow } from "../use.js";
import { ago, lasting } from "../parts/format.js";
import { Asked, Empty } from "../parts/states.js";
import { act } from "../parts/overlays.js";

export function Silences() {
  const asked = useAsk((signal) => get("alerts/silences", {}, signal), []);
  const now = useNow(10000);
  const remove = (id) =>
    act(() => ask(address(`alerts/silences/${id}`), { method: "DELETE" }), "Removed.", asked.again);
  return html`<${Asked} asked=${asked} what="Reading silences">${({ silences, expected }) =>
    !silences.length && !expected.length
      ? html`<div class="panel"><${Empty} title="Nothing is silenced">Silence an alert where it is listed.<//></div>`
      : html`<section class="alert-part panel"><div class="alert-scroll" tabindex="0" role="region"
            aria-label="Silences"><table class="plain">
        <thead><tr><th>what</th><th>where</th><th>until</th><th>by</th><th>why</th><th></th></tr></thead>
        <tbody>${silences.map(
          (each) => html`<tr key=${each.id}><th scope="row">${each.rule} · ${each.key}</th><td>${each.run}</td>
            <td>${lasting(Math.max(0, each.until - now))} left</td><td>${each.who}</td><td>${each.why}</td>
            <td><button type="button" class="button" onClick=${() => remove(each.id)}>Remove</button></td></tr>`,
        )}
        ${expected.map(
          (each) => html`<tr key=${each.id}><th scope="row">${each.finding || each.rule} · ${each.key}</th>
            <td>${each.run || `project ${each.project}`}</td><td>expected, marked ${ago(each.time, now)}</td>
            <td>${each.who}</td><td></td>
            <td><button type="button" class="button" onClick=${() => remove(each.id)}>Remove</button></td></tr>`,
        )}</tbody></table></div></section>`}<//>`;
}
