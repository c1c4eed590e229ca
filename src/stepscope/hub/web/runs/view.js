// All runs: a live table that can be filtered, sorted, grouped, and picked from to compare.
import { html, useEffect, useMemo, useRef, useState } from "../h.js";
import { useAccess } from "../access.js";
import { get } from "../api.js";
import { change, go, href, useParam } from "../router.js";
import { useFetch, useMedia, useSavedChoice, useNow } from "../use.js";
import { Code, Icon, Menu, Select, Toolbar } from "../parts/controls.js";
import { count, counted } from "../parts/format.js";
import { Confirm } from "../parts/overlays.js";
import { Failure, Loading, NoneYet } from "../parts/states.js";
import { VirtualTable } from "../parts/table.js";
import { editAll, remove } from "../run/edit.js";
import { Chooser, column, DEFAULTS, FACTS, isFact, metricsOf, twoLines, usualMetrics } from "./columns.js";
import { Filter } from "./filter.js";
import { fieldNames, fieldValues, groupChoices, grouped } from "./grouping.js";
import { reducedAmong } from "./reduced.js";
import { useRuns } from "./rows.js";
import { useRates, useSparks } from "./sparks.js";
import { Spread } from "./spread.js";

const NO_FIELDS = { plain: [], metrics: [], config: [], tags: [], projects: [] };

export default function RunsView() {
  const [filter] = useParam("filter");
  const [sort] = useParam("sort", "-started");
  const [group] = useParam("group");
  const [archived] = useParam("archived");
  const [closed, setClosed] = useState(() => new Set());
  const [picked, setPicked] = useState(() => new Set());
  const [chosen, setChosen] = useSavedChoice("columns", DEFAULTS);
  const fetched = useFetch((signal) => get("fields", {}, signal), []);
  const fields = fetched.value || NO_FIELDS;
  const ids = useMemo(
    () =>
      chosen.flatMap((id) => (id === "metrics" ? usualMetrics(fields.metrics).map((key) => "metrics." + key) : [id])),
    [chosen, fields],
  );
  const metrics = useMemo(
    () => (fetched.value || fetched.error ? metricsOf(ids) : null),
    [ids, fetched.value, fetched.error],
  );
  const runs = useRuns({ filter, sort, metrics, columns: reducedAmong(ids), archived, group });
  const now = useNow(5000),
    narrow = useMedia("(max-width: 640px)");
  const [sparks, seeSparks] = useSparks(metrics);
  const [rates, seeRates] = useRates();
  const last = useRef(0);
  useEffect(() => {
    // A first run brings the first names.
    if (runs.total && !fields.metrics.length && Date.now() - last.current > 3000) {
      last.current = Date.now();
      fetched.reload();
    }
  }, [runs.rows]);
  const toggle = (run) =>
    setPicked((old) => {
      const made = new Set(old);
      if (!made.delete(run.id)) made.add(run.id);
      return made;
    });
  const rows = useMemo(() => grouped(runs.rows, group, closed, runs.groups), [runs.rows, runs.groups, group, closed]);
  const columns = useMemo(
    () => columnsOf(ids, { sparks, rates, now, picked, toggle }, narrow, group),
    [ids.join(), sparks, rates, now, picked, narrow, group],
  );
  const seen = (shown) => {
    const own = shown.filter((row) => !row.heading);
    runs.see(own);
    if (ids.includes("spark") && !narrow) seeSparks(own);
    if (ids.includes("rate") && !narrow) seeRates(own);
  };

  if (runs.total === 0 && !filter && !archived && !runs.archived)
    return html`<div class="page"><${NoneYet} reload=${runs.reload}><${FirstRun} home=${fetched.value?.home} /><//></div>`;
  const wrong = runs.error?.status === 400 ? runs.error.message : "";
  return html`<div class="page fill runs">
    <div class="runs-bar">
      <${Filter} value=${filter} onChange=${(text) => change({ filter: text })} problem=${wrong}
          fields=${fieldNames(fields)} valuesOf=${(field) => fieldValues(field, runs.rows, fields)} />
      <${Toolbar} label="Table">
        <${Select} label="group" hidden=${false} value=${group} onChange=${(by) => change({ group: by })}
          options=${groupChoices(fields)} />
        ${group && html`<${FoldAll} rows=${rows} closed=${closed} setClosed=${setClosed} />`}
        ${
          narrow &&
          html`<${Select} label="sort" hidden=${false} value=${sort}
              onChange=${(by) => change({ sort: by === "-started" ? null : by })} options=${orders(ids, sort)} />`
        }
        <${Archived} value=${archived} count=${runs.archived || 0} />
        <${Menu} label="Columns" icon="columns" align="right">
          <${Chooser} chosen=${ids} fields=${fields} onChange=${setChosen} onReset=${() => setChosen(DEFAULTS)} /><//>
        <button type="button" class=${"button" + (picked.size > 1 ? " primary" : "")} disabled=${picked.size < 2}
          onClick=${() => go(href("compare", { run: [...picked] }))}>Compare${picked.size ? ` ${picked.size}` : ""}
          </button>
        <${Manage} picked=${picked} onDone=${() => {
          setPicked(new Set());
          runs.reload();
          fetched.reload();
        }} />
      <//>
      <p class="runs-count muted" role="status">${countWords(runs, filter)}</p>
    </div>
    ${Object.entries(runs.leftOut).map(([field, why]) => html`<p key=${field} class="note">${field} is left out: ${why}</p>`)}
    ${
      runs.error && !wrong && !runs.rows.length
        ? html`<${Failure} error=${runs.error} reload=${runs.reload} />`
        : wrong && runs.total === null
          ? null
          : runs.total === null
            ? html`<${Loading} what="Loading runs" />`
            : html`<${VirtualTable} label="Runs" columns=${columns} rows=${rows}
                rowHeight=${narrow ? 50 : 34} keyOf=${(row) => (row.heading ? "group " + row.heading : row.id)} sort=${sort}
                question=${[filter, group, archived].join("\n")}
            onSort=${(next) => change({ sort: next === "-started" ? null : next })} onSeen=${seen}
                onToggle=${(row) => (row.heading ? fold(row, setClosed) : toggle(row))}
            onOpen=${(row) => (row.heading ? fold(row, setClosed) : go(href("run", row.id)))}
                rowClass=${(row) => (row.heading ? "heading" : picked.has(row.id) ? "on" : "")} />`
    }
    ${
      (runs.total ?? 0) > 0 &&
      !runs.rows.length &&
      !runs.loading &&
      !wrong &&
      html`<${NoneYet} reload=${runs.reload}>
        <p class="runs-none muted">No run matches this filter. <a href=${href("runs")}>Show all ${count(runs.total)}</a></p>
      <//>`
    }
  </div>`;
}

// All groups folded to one row each, or all of them open.
function FoldAll({ rows, closed, setClosed }) {
  const names = rows.filter((row) => row.heading).map((row) => row.heading);
  const folded = names.length > 0 && names.every((name) => closed.has(name));
  return html`<button type="button" class="button" onClick=${() => setClosed(new Set(folded ? [] : names))}
    >${folded ? "Unfold all" : "Fold all"}</button>`;
}

function columnsOf(ids, given, narrow, group) {
  const box = {
    id: "pick",
    title: "Select",
    head: html`<span class="sr">Select to compare</span>`,
    width: "34px",
    cell: (run) =>
      run.heading
        ? null
        : html`<input type="checkbox" tabindex="-1" aria-label=${`Select ${run.name || run.id}`}
            checked=${given.picked.has(run.id)} onChange=${() => given.toggle(run)} />`,
  };
  // On a phone a run has two lines; of its state the sign is enough, and the word stays for those who listen.
  const made = (narrow ? [] : ids).map((id) => column(id, given)).filter(Boolean);
  if (narrow) made.push({ ...column("status", given), width: "32px" }, twoLines(ids, given));
  const named = made.map((each) => ({
    ...each,
    width: group && isFact(each.id) && !each.id.startsWith("config.") ? SPREAD_WIDTH : each.width,
    cell: (row) =>
      !row.heading
        ? each.cell(row)
        : each.id === "name"
          ? narrow
            ? twoLinesOf(row, ids.filter(isFact))
            : heading(row)
          : html`<${Spread} id=${each.id} row=${row} brief=${!isFact(each.id)} />`,
  }));
  return [box, ...named];
}

// How a table without heads of columns can be sorted.
function orders(ids, sort) {
  const found = ids.map((id) => column(id, {})).filter((each) => each?.sortable);
  const options = found.flatMap(({ title, sortable }) => [
    ["-" + sortable, `${title} ↓`],
    [sortable, `${title} ↑`],
  ]);
  return options.some(([id]) => id === sort) ? options : [[sort, sort], ...options];
}

const SPREAD_WIDTH = "156px";

const heading = (row) =>
  html`<span class="group-title"><${Icon} name=${row.open ? "down" : "right"} size=${11} /><span class="wide-name">${row.heading}</span>
    <span class="muted">${count(row.size)}</span></span>`;

// A group on a phone: its name, and below it the means of its runs.
const twoLinesOf = (row, facts) => html`<div class="run-two"><div>${heading(row)}</div>
  <div class="run-state"><span class="run-facts">${facts
    .filter((id) => row.columns[id])
    .slice(0, FACTS)
    .map(
      (
        id,
      ) => html`<span key=${id} class="run-fact"><span class="muted">${column(id, {})?.title}</span>${" "}<${Spread} id=${id}
        row=${row} /></span>`,
    )}</span></div></div>`;

const fold = (row, setClosed) =>
  setClosed((old) => {
    const made = new Set(old);
    if (!made.delete(row.heading)) made.add(row.heading);
    return made;
  });

function countWords({ rows, matched, total, loading, state }, filter) {
  if (total === null) return "";
  const part = filter ? `${count(matched)} of ${counted(total)}` : counted(total);
  return (
    part +
    (loading && rows.length < matched ? `, ${count(rows.length)} loaded` : "") +
    (state === "lost" ? " · reconnecting" : "")
  );
}

// What a new user sees: the lines to paste, and that the page is waiting for them.
const LINES = `import stepscope

run = stepscope.init(project="gpt", config={"lr": 3e-4})
run.log({"loss": loss}, step=i, category="trainer")   # in your loop
run.finish()`;

const ANY_KEY = "0".repeat(40);

function FirstRun({ home }) {
  return html`<div class="first">
    <h1>No runs yet</h1>
    <p class="muted" role="status"><span class="pulse" aria-hidden="true"></span> Waiting for the first record…</p>
    <h2>From your training code</h2>
    <p>Add three lines. No account and no server are needed, and your loop is not slowed down:</p>
    <${Code} text=${LINES} />
    <p>Start it, and the run appears here. ${
      home
        ? html`The hub reads <code>${home}
        </code>; set <code>STEPSCOPE_HOME=${home}</code> where your program runs.`
        : "The hub reads the home folder that your program writes to."
    }</p>
    <h2>From a W&B script, unchanged</h2>
    <${Code} text=${`WANDB_BASE_URL=${location.origin} WANDB_API_KEY=${ANY_KEY} python train.py`} />
    <p>Its client wants a key for each address. Where the hub has no tokens, any 40 characters are one.</p>
    <h2>From an MLflow script, unchanged</h2>
    <${Code} text=${`MLFLOW_TRACKING_URI=${location.origin} python train.py`} />
    <h2>From runs that you have</h2>
    <p>Files of W&B, MLflow, TensorBoard and others become runs, as do CSV and JSON lines.</p>
    <${Code} text="stepscope import FOLDER" />
    <h2>Or try the demo</h2>
    <p>The demo trains a small model in which things go wrong on purpose.</p>
    <${Code} text="stepscope demo" />
    <h2>Already sending OpenTelemetry?</h2>
    <p>Point your exporter here; metrics, spans and logs are accepted as they are.</p>
    <${Code} text=${`export OTEL_EXPORTER_OTLP_ENDPOINT=${location.origin}`} />
  </div>`;
}

// The runs that are picked: archived, shown again or deleted together; and which archived runs the table shows.
export function Manage({ picked, onDone }) {
  const [asking, setAsking] = useState(false),
    { may } = useAccess();
  if (!picked.size || !may("admin")) return null;
  const ids = [...picked];
  const archive = (close, archived) => {
    close();
    editAll(ids, { archived }, (n) => `${archived ? "Archived" : "Unarchived"} ${counted(n)}.`, onDone);
  };
  return html`<${Menu} label="Manage" align="right">${(close) => html`
      <button type="button" class="item" onClick=${() => archive(close, true)}>Archive ${counted(ids.length)}</button>
      <button type="button" class="item" onClick=${() => archive(close, false)}>Unarchive ${counted(ids.length)}</button>
      <button type="button" class="item bad-text" onClick=${() => {
        close();
        setAsking(true);
      }}>Delete ${counted(ids.length)}…</button>`}<//>
    ${
      asking &&
      html`<${Confirm} title=${`Delete ${counted(ids.length)}?`} action="Delete" onClose=${() => setAsking(false)}
          act=${() => remove(ids).finally(onDone)}>
      <p>Their journals and stored records are removed from this hub's disk. This cannot be undone.${" "}
        Runs that are still running are not deleted.</p>
      <//>`
    }`;
}

export function Archived({ value, count: there }) {
  if (!there && !value) return null;
  return html`<${Select} label="Archived runs" value=${value} onChange=${(next) => change({ archived: next })}
    options=${[
      ["", "without archived"],
      ["show", `with ${count(there)} archived`],
      ["only", "archived only"],
    ]} />`;
}
