// The checkpoints of a run with the metrics at their steps, and the runs that it came from and that came from it.
import { html, useEffect, useState } from "../h.js";
import { get, quoted, runPath } from "../api.js";
import { change, href, useParam } from "../router.js";
import { useFetch } from "../use.js";
import { Select, Status } from "../parts/controls.js";
import { canonicalKey } from "../parts/metric_names.js";
import { bytes, clock, count, lasting, number, ordinal } from "../parts/format.js";

const EVERY = 10000, // milliseconds between questions while the run goes on
  CHILDREN = 50;

export function Checkpoints({ run, going }) {
  const [best] = useParam("best");
  const fetched = useFetch(
    (signal) => get(runPath(run.id, "checkpoints"), { best }, signal),
    [run.id, best, run.status],
  );
  useEffect(() => {
    const timer = going ? setInterval(() => !document.hidden && fetched.reload(), EVERY) : 0;
    return () => clearInterval(timer);
  }, [going]);
  const found = fetched.value;
  if (!found || (!found.total && !found.loaded.length)) return null;
  const shown = found.checkpoints.filter((each) => !each.replaced).length;
  return html`<section class="panel box checkpoints" aria-label="Checkpoints">
    <header class="box-head"><h2>Checkpoints <span class="muted">${count(found.total - found.replaced)}</span></h2>
      ${
        found.keys.length > 0 &&
        html`<${Select} label="best by" hidden=${false} value=${best || found.best?.key || found.keys[0]}
            options=${found.keys.map((key) => [key, canonicalKey(key)])} onChange=${(key) => change({ best: key })} />`
      }</header>
    <div class="box-body" tabindex="0" role="region" aria-label="Table of checkpoints">
      ${found.loaded.map((each) => html`<p class="muted" key=${each.attempt + "-" + each.rank}>${loadedWords(each)}</p>`)}
      ${found.total > 0 && html`<${Table} found=${found} />`}
      ${
        found.total - found.replaced > shown &&
        html`<p class="muted">The newest ${count(shown)} are shown; the best is the best of these.</p>`
      }
    </div></section>`;
}

function loadedWords({ attempt, rank, step, path }) {
  const at = step === null ? "" : ` of step ${ordinal(step)}`;
  return `Attempt ${attempt}${rank ? ` on rank ${rank}` : ""} continued from the checkpoint${at}: ${path}`;
}

// The checkpoints that are there; those whose path was written again are folded.
function Table({ found }) {
  const [open, setOpen] = useState(false),
    rows = found.checkpoints.filter((each) => open || !each.replaced),
    replaced = found.checkpoints.filter((each) => each.replaced).length;
  return html`<table class="plain">
    <thead><tr><th><span class="sr">best</span></th><th class="num">step</th>
      ${found.keys.map((key) => html`<th class="num" key=${key}>${canonicalKey(key)}</th>`)}
      <th class="num">size</th><th class="num">took</th><th>saved</th><th>path</th></tr></thead>
    <tbody>${rows.map(
      (each) => html`<tr key=${each.id} class=${each.replaced ? "muted" : ""}>
        <td>${
          found.best?.id === each.id &&
          html`<span class="good-text" role="img" aria-label="best" title=${`Best ${canonicalKey(found.best.key)}`}>★</span>`
        }</td>
        <td class="num">${ordinal(each.step)}</td>
        ${found.keys.map((key) => html`<td class="num" key=${key}><${Value} value=${each.values[key]} step=${each.step} /></td>`)}
        <td class="num">${each.bytes === null ? "–" : bytes(each.bytes)}${
          each.complete === false &&
          html`<span class="warn-text" title="Some files could not be read, or there were too many"> ?</span>`
        }</td>
        <td class="num">${each.seconds === null ? "–" : lasting(each.seconds)}</td>
        <td class="nowrap">${clock(each.time)}</td>
        <td class="mono checkpoint-path" title=${each.manifest ? `manifest ${each.manifest}` : undefined}>${each.path}${
          (each.replaced || each.version > 1) &&
          html`<span class="muted"> ${each.replaced ? `version ${each.version}, replaced` : `version ${each.version}`}</span>`
        }</td></tr>`,
    )}</tbody></table>
    ${
      replaced > 0 &&
      html`<button type="button" class="link" aria-expanded=${open} onClick=${() => setOpen(!open)}>
        ${open ? "Hide" : "Show"} ${count(replaced)} that later ones at the same path replaced</button>`
    }`;
}

// The value of a metric at the step of a checkpoint; one of an earlier step says so.
function Value({ value, step }) {
  if (!value) return "–";
  const shown = number(value.value);
  return value.step === step
    ? shown
    : html`<span class="muted" title=${`At step ${ordinal(value.step)}`}>${shown}</span>`;
}

// The parent of a run and its children; nothing where it has neither.
export function Lineage({ run }) {
  const children = useFetch(
    (signal) =>
      get("runs", { filter: `parent = ${quoted(run.id)}`, archived: "show", limit: CHILDREN, sort: "started" }, signal),
    [run.id],
  );
  const found = children.value;
  if (!run.parent && !found?.runs.length) return null;
  return html`<section class="panel box" aria-label="Lineage">
    <header class="box-head"><h2>Lineage</h2></header>
    <div class="box-body" tabindex="0" role="region" aria-label="Table of related runs">
      <table class="plain"><thead><tr><th></th><th>run</th><th class="num">from step</th><th>status</th></tr></thead><tbody>
        ${
          run.parent &&
          html`<tr><td class="muted">parent</td><td><${Link} id=${run.parent} /></td>
            <td class="num">${ordinal(run.from_step)}</td><td></td></tr>`
        }
        <tr><td class="muted">this run</td><td>${run.name || run.id}</td><td></td><td><${Status} run=${run} /></td></tr>
        ${(found?.runs || []).map(
          (
            each,
          ) => html`<tr key=${each.id}><td class="muted">child</td><td><${Link} id=${each.id} name=${each.name} /></td>
            <td class="num">${ordinal(each.from_step)}</td><td><${Status} run=${each} /></td></tr>`,
        )}
      </tbody></table>
      ${found && found.matched > found.runs.length && html`<p class="muted">${count(found.matched - found.runs.length)} more</p>`}
    </div></section>`;
}

const Link = ({ id, name = "" }) => html`<a href=${href("run", id)}>${name || id}</a>`;
