// What was unusual about a step, in sentences: values, time, failures.
import { html } from "../h.js";
import { millis, number, real, signed } from "../parts/format.js";
import { Icon } from "../parts/icons.js";

export function Findings({ step }) {
  const found = [...alertsOf(step), ...valuesOf(step), ...failuresOf(step), ...slownessOf(step)];
  return html`<section class="findings" aria-label="What was unusual">
    <ul>${found.length ? found.map((each, at) => html`<li key=${at} class=${each.kind}><${Icon} name=${each.icon} />
      <span>${each.text}</span></li>`) : html`<li class="good"><${Icon} name="check" /><span>Nothing unusual against the ${step.window} steps before.</span></li>`}</ul>
  </section>`;
}

function alertsOf(step) {
  return step.alerts.slice(0, 5).map((alert) => ({ kind: alert.severity_number >= 17 ? "bad" : "warn", icon: "flag",
    text: html`<b>${alert.name}</b> on rank ${alert.rank}${alert.body ? html`: ${alert.body}` : null}` }));
}

// The values furthest from what is usual, one sentence for each metric; those that are not finite come first.
function valuesOf(step) {
  const odd = [];
  for (const { key, values } of step.metrics) {
    const strange = values.map((value) => ({ value, out: outOf(value) })).filter(({ out }) => out > 0).sort((a, b) => b.out - a.out);
    if (strange.length) odd.push({ key, value: strange[0].value, out: strange[0].out, where: where(strange.map(({ value }) => value.rank), values.length) });
  }
  odd.sort((a, b) => b.out - a.out);
  return odd.slice(0, 4).map(({ key, value, out, where: place }) => ({ kind: "bad", icon: "warn", text: out === Infinity
    ? html`<b>${key}</b> is ${number(value.value)} ${place}`
    : html`<b>${key}</b> is ${number(value.value)} ${place}, usually ${number(real(value.mean), 3)} ± ${number(real(value.std), 2)} (${signed(value.z, 3)} σ)` }));
}

function outOf(value) {
  if (!Number.isFinite(real(value.value))) return Infinity;
  return value.z !== null && Math.abs(value.z) >= 6 && !steady(value) ? Math.abs(value.z) : 0;
}

function where(ranks, all) {
  if (ranks.length === 1) return `on rank ${ranks[0]}`;
  if (ranks.length === all) return "on every rank";
  return `on ranks ${[...ranks].sort((a, b) => a - b).slice(0, 6).join(", ")}`;
}

// A counter or schedule moves by small even steps: far in deviations, not unusual.
const steady = (value) => Math.abs(real(value.delta)) < 2.5 * Math.abs(real(value.std)) || Math.abs(real(value.delta)) < Math.abs(real(value.mean)) * 0.02;

function failuresOf(step) {
  const failed = step.ranks.flatMap((rank) => rank.spans.filter((span) => span.status === "error").map((span) => ({ rank: rank.rank, span })));
  return failed.slice(0, 3).map(({ rank, span }) => ({ kind: "bad", icon: "close", text: html`<b>${span.name}</b> failed on rank ${rank}${span.message ? `: ${span.message}` : ""}` }));
}

// From the slowest root down to the span that explains it.
function slownessOf(step) {
  const cause = slowest(step);
  if (!cause) return [];
  const { rank, root, span } = cause;
  const late = awaited(step, span, rank);
  const why = span === root ? "" : html`: <b>${span.name}</b> took ${millis(span.duration_ms)} instead of ${millis(span.usual_ms)}${late === null ? "" : `, waiting for rank ${late}`}`;
  return [{ kind: "warn", icon: "warn", text: html`Rank ${rank} took ${millis(root.duration_ms)} for <b>${root.name}</b>, usually ${millis(root.usual_ms)} (×${number(root.ratio, 2)})${why}` }];
}

// Where ranks meet, those that are early wait; the one that waits least came last.
function awaited(step, span, rank) {
  if (!/all_?reduce|all_?gather|reduce_?scatter|barrier|broadcast|collective/i.test(span.name)) return null;
  const waits = step.ranks.flatMap((lane) => lane.spans.filter((each) => each.name === span.name).slice(0, 1).map((each) => ({ rank: lane.rank, ms: each.duration_ms })));
  const least = waits.reduce((a, b) => (!a || b.ms < a.ms ? b : a), null);
  return least && least.rank !== rank && least.ms < span.duration_ms / 2 ? least.rank : null;
}

export function slowest(step) {
  let worst = null;
  for (const { rank, spans } of step.ranks) {
    for (const span of spans) {
      if (span.depth !== 0 || excess(span) <= 0) continue;
      if (!worst || excess(span) > excess(worst.root)) worst = { rank, root: span, spans };
    }
  }
  if (!worst || worst.root.ratio < 1.4) return null;
  let here = worst.root;
  for (;;) {
    const next = worst.spans.filter((span) => span.parent_id === here.span_id).reduce((a, b) => (!a || excess(b) > excess(a) ? b : a), null);
    if (!next || excess(next) < 0.5 * excess(here)) break;
    here = next;
  }
  return { rank: worst.rank, root: worst.root, span: here };
}

const excess = (span) => span.usual_ms === null || span.duration_ms === null ? 0 : span.duration_ms - span.usual_ms;
