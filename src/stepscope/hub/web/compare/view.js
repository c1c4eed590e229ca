// Runs over each other: their curves in one set of charts, and how their configurations differ.
import { html, useEffect, useMemo, useState } from "../h.js";
import { get, runPath } from "../api.js";
import { change, go, href, useParam, useParams } from "../router.js";
import { useFetch, useDebounced } from "../use.js";
import { runStyles, useShownTheme } from "../theme.js";
import { IconButton, Menu, Status, Swatch } from "../parts/controls.js";
import { ago } from "../parts/format.js";
import { Fetched, Empty } from "../parts/states.js";
import { Diff } from "./diff.js";
import { Overlay } from "./overlay.js";

const MOST = 12;

export default function CompareView() {
  const [ids] = useParams("run");
  const [tab, setTab] = useParam("tab", "charts");
  const wanted = ids.slice(0, MOST);
  const theme = useShownTheme();
  const fetched = useFetch((signal) => readAll(wanted, signal), [wanted.join("\n")]);
  const styles = useMemo(() => runStyles(fetched.value || []), [fetched.value]);
  useEffect(() => {
    const named = (wanted.length && fetched.value) || [];
    document.title = `${named.map((run) => run.name || run.id).join(", ") || "Compare"} · Stepscope`;
  }, [fetched.value, wanted.length]);
  if (!wanted.length) {
    return html`<div class="page">
      <div class="page-head"><h1>Compare</h1></div>
      <${Empty}
          title="Select runs to compare">Select two or more in <a
              href=${href("runs")}>the runs table</a>, or add one here.
        <p class="compare-add"><${Adder} taken=${[]} onAdd=${(id) => go(href("compare", { run: [id] }))} /></p><//></div>`;
  }
  return html`<div class="page compare">
    <${Fetched} fetched=${fetched} what="Loading runs">${(runs) => html`
      <ul class="compare-runs" aria-label="Runs">
        ${runs.map(
          (run) => html`<li key=${run.id}><${Swatch} at=${styles.get(run.id)} />
            <a href=${href("run", run.id)}>${run.name || run.id}</a><${Status} run=${run} />
          <${IconButton} icon="close" label=${`Remove ${run.name || run.id}`}
              onClick=${() => change({ run: wanted.filter((id) => id !== run.id) })} />
          </li>`,
        )}
        ${
          wanted.length < MOST &&
          html`<li><${Adder} taken=${wanted} onAdd=${(id) => change({ run: [...wanted, id] })} /></li>`
        }
      </ul>
      ${ids.length > MOST && html`<p class="muted">The first ${MOST} of ${ids.length} are compared.</p>`}
      <nav class="tabs compare-tabs" aria-label="Parts of the comparison">${[
        ["charts", "Charts"],
        ["config", "Configuration"],
      ].map(
        ([name, title]) => html`
        <button key=${name} type="button" aria-current=${tab === name ? "page" : undefined}
            onClick=${() => setTab(name)}>${title}</button>`,
      )}</nav>
      ${
        tab === "config"
          ? html`<${Diff} runs=${runs} />`
          : html`<${Overlay} key=${wanted.join("\n")} runs=${runs} theme=${theme} />`
      }
    `}<//></div>`;
}

async function readAll(ids, signal) {
  return alike(
    await Promise.all(
      ids.map(async (id) => {
        const [run, keys] = await Promise.all([get(runPath(id), {}, signal), get(runPath(id, "keys"), {}, signal)]);
        return { ...run, keys: keys.keys };
      }),
    ),
  );
}

// Keys by the names under which they are compared: a run that has one metric under two spellings keeps both apart, and a
// key without a category is the trainer's where other runs have it there.
function alike(runs) {
  const own = runs.map((run) => new Set(run.keys.map((key) => key.name)));
  return runs.map((run, at) => ({
    ...run,
    keys: run.keys.map((key) => {
      if (run.keys.some((each) => each !== key && each.name === key.name)) return { ...key, name: key.key };
      const trainers = `trainer/${key.name}`,
        isShared = !own[at].has(trainers) && own.some((names) => names.has(trainers));
      return isShared ? { ...key, name: trainers } : key;
    }),
  }));
}

// Add a run to a comparison: type a part of its name.
export function Adder({ taken, onAdd }) {
  return html`<${Menu} label="Add a run">${(close) =>
    html`<${Choices} taken=${taken} onAdd=${(id) => {
      close();
      onAdd(id);
    }} />`}<//>`;
}

function Choices({ taken, onAdd }) {
  const [text, setText] = useState("");
  const wanted = useDebounced(text, 150);
  const fetched = useFetch(
    (signal) =>
      get(
        "runs",
        { limit: 30, filter: wanted ? `name ~ ${JSON.stringify(wanted)} or id ~ ${JSON.stringify(wanted)}` : "" },
        signal,
      ),
    [wanted],
  );
  const runs = (fetched.value?.runs || []).filter((run) => !taken.includes(run.id));
  return html`<div class="chooser">
    <input type="search" aria-label="Find a run" placeholder="Find a run" value=${text}
        onInput=${(event) => setText(event.target.value)} />
    ${runs.map(
      (run) =>
        html`<button key=${run.id} type="button" class="item"
            onClick=${() => onAdd(run.id)}><${Status} run=${run} />
              <span class="wide-name" title=${run.name || run.id}>${run.name || run.id}</span>
              <span class="muted">${ago(run.started)}</span></button>`,
    )}
    ${fetched.value && !runs.length && html`<p class="muted note-line">No other runs.</p>`}</div>`;
}
