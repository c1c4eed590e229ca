// Rules: those in force, an editor for the page's own with a preview over a chosen run, and the notifiers.
import { html, useState } from "../h.js";
import { useAccess } from "../access.js";
import { address, fetchJson, get, post } from "../api.js";
import { href, useParam } from "../router.js";
import { useFetch, useDebounced } from "../use.js";
import { count, plain } from "../parts/format.js";
import { Select, Severity } from "../parts/controls.js";
import { Fetched } from "../parts/states.js";
import { act, toast } from "../parts/overlays.js";
import { RuleForm } from "./rule_form.js";

const EXAMPLE = `rules:
  - name: loss too high
    key: trainer/loss
    when: "> 10"
    for: 20 steps
    recovery: 8
    severity: ERROR
`;
const SETTLE_MS = 400,
  MAX_RUNS = 50;

export function Rules() {
  const { may, limit } = useAccess();
  const fetched = useFetch((signal) => get("alerts/rules", {}, signal), []);
  return html`<${Fetched} fetched=${fetched} what="Loading rules">${(found) => html`
    ${found.mistakes.map(
      (each) => html`<p key=${each.file + each.line} class="alert-mistake bad-text" role="alert">
        ${each.file}, line ${each.line}, column ${each.column}: ${each.message}</p>`,
    )}
    ${found.trouble && html`<p class="alert-mistake bad-text" role="alert">${found.trouble}</p>`}
    ${may("admin") && !limit && html`<${Editor} yaml=${found.yaml} version=${found.version} reload=${fetched.reload} />`}
    <${InForce} rules=${found.rules} />
    <${Notifiers} notifiers=${found.notifiers} />`}<//>`;
}

function Editor({ yaml, version, reload }) {
  const [text, setText] = useState(yaml || EXAMPLE);
  const [run, setRun] = useParam("over", ""),
    [metric] = useParam("key");
  const runs = useFetch((signal) => get("runs", { limit: MAX_RUNS, sort: "-started" }, signal), []);
  const chosen = run || runs.value?.runs[0]?.id || "";
  const settled = useDebounced(text, SETTLE_MS);
  const tried = useFetch(
    (signal) => (chosen ? post("alerts/preview", { yaml: settled, run: chosen }, signal) : Promise.resolve(null)),
    [settled, chosen],
  );
  const options = (runs.value?.runs || []).map((each) => [each.id, each.name || each.id]);
  const mistake = tried.value?.mistake;
  const save = () =>
    act(
      () =>
        fetchJson(address("alerts/rules"), {
          method: "PUT",
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify({ yaml: text, version }),
        }),
      "Rules saved and active.",
      reload,
    );
  return html`<section class="alert-editor panel">
    <header><h2>Rules edited here</h2><span class="muted">saved as alerts-page.yaml in the hub's home</span>
      <span class="grow"></span>
      ${
        options.length > 0 &&
        html`<${Select} label="Preview over" hidden=${false} value=${chosen}
          options=${options} onChange=${setRun} />`
      }
      <${RuleForm} text=${text} onText=${setText} metric=${metric} />
      <button type="button" class="button primary" disabled=${!!mistake || text === yaml} onClick=${save}>Save</button>
    </header>
    <div class="alert-editor-parts">
      <textarea aria-label="Rules as YAML" spellcheck=${false} value=${text} aria-invalid=${mistake ? "true" : "false"}
          onInput=${(event) => setText(event.target.value)}></textarea>
      <${Preview} tried=${tried} run=${chosen} />
    </div>
  </section>`;
}

const many = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

function Preview({ tried, run }) {
  if (tried.error)
    return html`<div class="alert-preview"><p class="bad-text" role="alert">${tried.error.message}</p></div>`;
  if (!tried.value)
    return html`<div class="alert-preview"><p class="muted">Choose a run to try the rules on.</p></div>`;
  const { mistake, alerts, fired, matched, points, complete } = tried.value;
  if (mistake)
    return html`<div class="alert-preview"><p class="bad-text" role="alert">
      Line ${mistake.line}, column ${mistake.column}: ${mistake.message}</p></div>`;
  const over = `${many(points, "point")} of ${many(matched, "metric")}${complete ? "" : ", not all"}`;
  return html`<div class="alert-preview" aria-live="polite">
    <p><b>${fired ? `${count(fired)} would have fired` : "Nothing would have fired"}</b>
      <span class="muted"> over ${over}${fired > alerts.length ? `; the first ${count(alerts.length)}:` : ""}</span></p>
    <ul>${alerts.map(
      (each, at) => html`<li key=${at}><${Severity} severity=${each.severity} />
        <a href=${href("run", run, each.step === null ? {} : { step: each.step })}>step ${plain(each.step)}</a>
        ${" "}${each.message}</li>`,
    )}</ul></div>`;
}

function InForce({ rules }) {
  return html`<section class="alert-part panel"><header><h2>Active rules</h2>
      <span class="muted">from files and built-in packs</span></header>
    <div class="alert-scroll" tabindex="0" role="region" aria-label="Active rules"><table class="plain">
      <thead><tr><th>rule</th><th>when</th><th>for</th><th>severity</th><th class="num">series</th>
        <th class="num">firing</th><th>from</th></tr></thead>
      <tbody>${rules.map(
        (rule) => html`<tr key=${rule.name} class=${rule.enabled ? "" : "muted"}>
          <th scope="row" title=${rule.keys.join(", ")}>${rule.name}</th><td><code>${rule.when}</code></td>
          <td>${rule.for || "–"}</td><td>${rule.severity ? html`<${Severity} severity=${rule.severity} />` : "–"}</td>
          <td class="num">${count(rule.series)}${rule.skipped ? ` of ${count(rule.series + rule.skipped)}` : ""}</td>
          <td class=${"num" + (rule.firing ? " bad-text" : "")}>${count(rule.firing)}</td><td>${rule.source}</td></tr>`,
      )}</tbody></table></div></section>`;
}

function Notifiers({ notifiers }) {
  const [busy, setBusy] = useState(""),
    { may, limit } = useAccess();
  const test = async (name) => {
    setBusy(name);
    try {
      const found = await post(`alerts/notifiers/${encodeURIComponent(name)}/test`, {});
      toast(found.sent ? `${name} accepted the test notification.` : `${name}: ${found.reason}`, { bad: !found.sent });
    } catch (error) {
      toast(error.message, { bad: true });
    }
    setBusy("");
  };
  return html`<section class="alert-part panel"><header><h2>Notifiers</h2>
      <span class="muted">configured in alerts.yaml on the hub's machine</span></header>
    <div class="alert-scroll" tabindex="0" role="region" aria-label="Notifiers"><table class="plain">
      <thead><tr><th>name</th><th>to</th><th class="num">sent</th><th class="num">retried</th><th class="num">dropped</th>
        <th>last error</th><th></th></tr></thead>
      <tbody>${notifiers.map(
        (each) => html`<tr key=${each.name}><th scope="row">${each.name}</th><td>${each.place}</td>
          <td class="num">${count(each.sent)}</td><td class="num">${count(each.retried)}</td>
          <td class=${"num" + (each.dropped + each.rejected ? " bad-text" : "")}>${count(each.dropped + each.rejected)}</td>
          <td class=${each.trouble ? "warn-text" : "muted"}>${each.trouble || "none"}</td>
          <td>${
            may("admin") &&
            !limit &&
            html`<button type="button" class="button" disabled=${busy === each.name} onClick=${() => test(each.name)}>
            ${busy === each.name ? "Sending…" : "Test"}</button>`
          }</td></tr>`,
      )}</tbody></table></div></section>`;
}
