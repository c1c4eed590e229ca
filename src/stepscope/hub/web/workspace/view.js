// A workspace: the runs of a project, or chosen ones, in a list beside charts in which all visible runs lie over each other.
import { html, useEffect, useMemo, useState } from "../h.js";
import { get, quoted } from "../api.js";
import { change, go, href, useParam, useParams, useTab } from "../router.js";
import { useDebounced, useFetch, useMedia, useNow } from "../use.js";
import { runStyles, useShownTheme } from "../theme.js";
import { Menu, Status } from "../parts/controls.js";
import { ago, count } from "../parts/format.js";
import { Empty, Failure, Loading } from "../parts/states.js";
import { FACTS, groupOf, isFact, metricsOf, usualMetrics } from "../runs/columns.js";
import { reducedAmong } from "../runs/reduced.js";
import { useRuns } from "../runs/rows.js";
import { Diff } from "./diff.js";
import { RunList } from "./list.js";
import { ProjectNotes } from "./notes.js";
import { Overlay } from "./overlay.js";
import { Relations } from "./scatter.js";
import { Share } from "../share/dialog.js";
import { useList } from "./state.js";
import { Opening, Views } from "./views.js";
import { escapeInvisible } from "../parts/invisible.js";

const MOST = 50; // runs that are visible until someone says otherwise
const MAX_DIFF = 40; // runs whose settings are compared side by side
const NO_FIELDS = { plain: [], metrics: [], config: [], tags: [], projects: [] };

export default function WorkspaceView({ parts }) {
  const project = parts[0] ?? null;
  const [chosen] = useParams("run");
  if (project === null && !chosen.length) return html`<${Nothing} />`;
  const workspace = html`<${Workspace} key=${project} project=${project} chosen=${chosen} />`;
  return project === null ? workspace : html`<${Opening} key=${project} project=${project}>${workspace}<//>`;
}

function Nothing() {
  useEffect(() => {
    document.title = "Compare · Stepscope";
  }, []);
  return html`<div class="page">
    <div class="page-head"><h1>Compare</h1></div>
    <${Empty} title="Select runs to compare">Select two or more in <a href=${href("runs")}>the runs table</a>, or add one
      here.<p class="compare-add"><${Adder} taken=${[]} onAdd=${(id) => go(href("compare", { run: [id] }))} /></p><//>
  </div>`;
}

const TABS = [
  ["charts", "Charts"],
  ["relations", "Relations"],
  ["config", "Configuration"],
];

function Workspace({ project, chosen }) {
  const [filter] = useParam("filter");
  const [sort] = useParam("sort", "-started");
  const [by] = useParam("group");
  const tabs = project === null ? TABS : [...TABS, ["notes", "Notes"]],
    [tab, setTab] = useTab(tabs.map(([name]) => name));
  const [hidden] = useParams("hide");
  const [added] = useParams("show");
  const [columns, setColumns] = useList("column", project ?? "compare");
  const narrow = useMedia("(max-width: 900px)");
  const now = useNow(5000);
  const theme = useShownTheme();
  const idsText = chosen.join("\n");
  const fetched = useFetch(
    (signal) => get("fields", project === null ? { run: chosen } : { project }, signal),
    [project, project === null ? idsText : ""],
  );
  const fields = fetched.value || NO_FIELDS;
  const ids = useMemo(
    () =>
      columns.flatMap((id) => (id === "metrics" ? usualMetrics(fields.metrics).map((key) => "metrics." + key) : [id])),
    [columns, fields.metrics],
  );
  const facts = useMemo(() => ids.filter(isFact).slice(0, FACTS), [ids]);
  const metrics = useMemo(() => {
    if (!fetched.value && !fetched.error) return null;
    return metricsOf(facts);
  }, [facts.join("\n"), fetched.value, fetched.error]);
  const runs = useRuns({
    filter: asked(project, chosen, filter),
    sort,
    metrics,
    columns: reducedAmong(facts),
    archived: project === null ? "show" : "hide",
    group: by,
  });
  const visible = useMemo(
    () => visibleOf(runs.rows, project, chosen, hidden, added),
    [runs.rows, project, idsText, hidden, added],
  );
  const styles = useMemo(() => runStyles(runs.rows), [runs.rows.map((run) => run.id).join("\n")]);
  const shown = useMemo(() => runs.rows.filter((run) => visible.has(run.id)), [runs.rows, visible]);
  const groups = useMemo(() => groupsOf(runs.rows, shown, by), [runs.rows, shown, by]);
  const wrong = runs.error?.status === 400 ? runs.error.message : "";
  const [listed, setListed] = useState(false);
  useEffect(() => {
    const named = project ?? (shown.length <= 3 ? shown.map((run) => run.name || run.id).join(", ") : "Compare");
    document.title = `${escapeInvisible(named || "Compare")} · Stepscope`;
  }, [project, shown.length, shown[0]?.id]);
  const going = runs.rows.some((run) => run.status === "running");
  useEffect(() => {
    // New metrics of runs that go on appear by themselves.
    if (going && !fetched.loading) fetched.reload();
  }, [Math.floor(now / 30)]);

  const toggle = (ids, on) => change(toggled(ids, on, { rows: runs.rows, project, chosen, hidden, added, visible }));
  if (runs.total === null && !wrong)
    return runs.error
      ? html`<${Failure} error=${runs.error} reload=${runs.reload} />`
      : html`<${Loading} what="Loading runs" />`;
  const head = html`<div class="page-head">
    <h1>${
      project === null
        ? "Compare"
        : html`<a class="muted" href=${href("projects")}>Projects</a> <span class="muted">/</span> ${project}`
    }</h1>
    <nav class="tabs" aria-label="Parts of the workspace">${tabs.map(
      ([name, title]) => html`<button key=${name} type="button" aria-current=${tab === name ? "page" : undefined}
        onClick=${() => setTab(name)}>${title}</button>`,
    )}
      ${project !== null && html`<a href=${href("runs", { filter: `project = ${quoted(project)}` })}>Table</a>`}
    </nav>
    <span class="grow"></span>
    ${project !== null && html`<${Share} project=${project} name=${project} /><${Views} project=${project} />`}
    ${project === null && html`<${Adder} taken=${chosen} onAdd=${(id) => change({ run: [...chosen, id] })} />`}
    ${
      narrow &&
      html`<button type="button" class="button" aria-expanded=${String(listed)}
        onClick=${() => setListed(!listed)}>Runs ${count(visible.size)} of ${count(runs.matched)}</button>`
    }
  </div>`;
  return html`<div class="page fill workspace">
    ${head}
    <div class=${"workspace-parts" + (narrow && !listed ? " alone" : "")}>
      ${
        (!narrow || listed) &&
        html`<${RunList} project=${project} runs=${runs} fields=${fields} filter=${filter} sort=${sort} by=${by}
          wrong=${wrong} groups=${groups} visible=${visible} styles=${styles} ids=${ids} facts=${facts} setColumns=${setColumns} now=${now}
          toggle=${toggle} onRemove=${project === null ? (id) => change({ run: chosen.filter((each) => each !== id) }) : null} />`
      }
      <div class="workspace-main">
        ${
          tab === "config"
            ? html`<${Settings} runs=${shown} />`
            : tab === "notes"
              ? html`<${ProjectNotes} project=${project} runs=${shown} />`
              : tab === "relations"
                ? html`<${Relations} filter=${asked(project, chosen, filter)} visible=${visible} fields=${fetched} styles=${styles} />`
                : html`<${Overlay} project=${project} runs=${shown} fields=${fetched} styles=${styles} groups=${groups}
                theme=${theme} toggle=${toggle} />`
        }
      </div>
    </div>
  </div>`;
}

// The settings of the visible runs side by side; more than fit a table are said.
function Settings({ runs }) {
  const some = runs.slice(0, MAX_DIFF);
  if (!some.length) return html`<${Empty} title="No run is visible" />`;
  return html`${
    runs.length > MAX_DIFF && html`<p class="muted">The first ${MAX_DIFF} of ${count(runs.length)} visible runs.</p>`
  }
    <${Diff} runs=${some} />`;
}

// What the hub is asked for: the chosen runs, or those of the project that match the filter.
function asked(project, chosen, filter) {
  const scope = project === null ? `id in (${chosen.map(quoted).join(", ")})` : `project = ${JSON.stringify(project)}`;
  return filter ? `(${filter}) and ${scope}` : scope;
}

// In a project the chosen runs are visible, else the first of the list; runs that were hidden or added by hand are so.
function visibleOf(rows, project, chosen, hidden, added) {
  const out = new Set(hidden),
    more = new Set(added),
    only = new Set(chosen);
  const isVisible = (run, at) =>
    project !== null && only.size ? only.has(run.id) : !out.has(run.id) && (at < MOST || more.has(run.id));
  return new Set(rows.filter(isVisible).map((run) => run.id));
}

/** What of the address changes when runs are shown or hidden. */
function toggled(ids, on, { rows, project, chosen, hidden, added, visible }) {
  const all = new Set(ids);
  if (project !== null && chosen.length)
    return { run: on ? [...new Set([...chosen, ...ids])] : chosen.filter((id) => !all.has(id)) };
  const first = new Set(rows.slice(0, MOST).map((run) => run.id));
  if (!on) {
    // Many hidden runs would make a long address: the few that are left are named instead.
    const left = [...visible].filter((id) => !all.has(id));
    if (project !== null && left.length > 0 && left.length < hidden.length + ids.length)
      return { run: left, hide: null, show: null };
    return {
      hide: [...new Set([...hidden, ...ids.filter((id) => first.has(id))])],
      show: added.filter((id) => !all.has(id)),
    };
  }
  return {
    hide: hidden.filter((id) => !all.has(id)),
    show: [...new Set([...added, ...ids.filter((id) => !first.has(id))])],
  };
}

// The groups in the order of the list, each with a style of its own, and the group of each visible run; null without grouping.
function groupsOf(rows, shown, by) {
  if (!by) return null;
  const of = new Map(rows.map((run) => [run.id, groupOf(run, by) || "–"]));
  const names = [...new Set(of.values())].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  const sizes = new Map();
  for (const run of shown) sizes.set(of.get(run.id), (sizes.get(of.get(run.id)) || 0) + 1);
  return { by, of, sizes, styles: new Map(names.map((name, at) => [name, at])) };
}

// Add a run to a comparison: type a part of its name.
export function Adder({ taken, onAdd }) {
  return html`<${Menu} label="Add a run" align="right">${(close) =>
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
