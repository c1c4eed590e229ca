// What the time of a run was good for: one band, its shares, and the phases that took most.
import { html } from "../h.js";
import { Asked } from "../parts/states.js";
import { lasting, number, percent } from "../parts/format.js";
import { spanColour } from "../trace/hues.js";

const BUCKETS = [
  ["productive", "the model learned, or made what it learns from"],
  ["overhead", "needed, but nothing was learned: evaluation, checkpoints, synchronising"],
  ["idle", "waiting, as for data"],
  [
    "wasted",
    "work that was lost: only spans that say so themselves with train.bucket count here, a step done again after a crash does not",
  ],
  ["unaccounted", "no span says what it was good for"],
];
const PHASES = 8;

export function Goodput({ asked }) {
  return html`<section class="panel box goodput" aria-label="Goodput">
    <header class="box-head"><h2>Goodput</h2>
      ${asked.value && html`<span class="muted">${rates(asked.value)}</span>`}</header>
    <div class="box-body" tabindex="0" role="region"
        aria-label="Use of its time"><${Asked} asked=${asked} what="Adding up its time">${(found) => html`
      <${Band} found=${found} />
      ${
        found.shares.unaccounted > 0.999 &&
        html`<p class="muted">No span says what this time was good for. <code>run.span("train.forward")</code> and the
        integrations do; spans of your own with <code>train.bucket</code>.</p>`
      }
      <${Phases} found=${found} />`}<//></div>
  </section>`;
}

function Band({ found }) {
  const parts = BUCKETS.filter(([name]) => found.shares[name] > 0);
  const words = parts.map(([name]) => `${name} ${percent(found.shares[name])}`).join(", ");
  return html`<div class="goodput-band" role="img" aria-label=${words || "No time yet"}>
      ${parts.map(
        ([name]) =>
          html`<span key=${name} class=${"of-" + name} style=${{ flexGrow: found.shares[name] }}
              title=${`${name} ${percent(found.shares[name])}`}></span>`,
      )}
    </div>
    <ul class="goodput-shares">
      ${parts.map(
        ([name, meaning]) => html`<li key=${name} title=${meaning}><i class=${"of-" + name}></i>${name}
        <b>${percent(found.shares[name])}</b><span class="muted">${lasting(found.buckets[name])}</span></li>`,
      )}
    </ul>`;
}

function Phases({ found }) {
  const phases = Object.entries(found.phases).sort(([, a], [, b]) => b - a);
  if (!phases.length) return null;
  const longest = phases[0][1];
  return html`<table class="plain">
    <thead><tr><th>phase</th><th class="num">time</th><th class="phase-bar"></th></tr></thead><tbody>
    ${phases.slice(0, PHASES).map(
      ([name, seconds]) => html`<tr key=${name}><td class="mono">${name}</td><td class="num">${lasting(seconds)}</td>
      <td class="phase-bar">
        <i style=${{ width: `${(100 * seconds) / longest}%`, background: spanColour(name) }}></i></td>
      </tr>`,
    )}
    ${
      phases.length > PHASES && html`<tr><td class="muted" colspan="3">${phases.length - PHASES} shorter ones</td></tr>`
    }
  </tbody></table>`;
}

function rates(found) {
  const said = [];
  if (found.steps_per_second) said.push(`${number(found.steps_per_second, 3)} steps/s`);
  if (found.tokens_per_second)
    said.push(
      `${number(found.tokens_per_second, 3)} tokens/s${found.tokens_counted ? " (by the increase of a counter)" : ""}`,
    );
  said.push(`${lasting(found.seconds)} over all ranks`);
  return said.join(" · ");
}
