// Dashboards: built-in and custom ones, drawn for any run, and edited as YAML beside the charts.
import { html, useEffect, useRef, useState } from "../h.js";
import { May, useAccess } from "../access.js";
import { address, fetchJson, get, post } from "../api.js";
import { change, go, href, useParam } from "../router.js";
import { useFetch, useDebounced } from "../use.js";
import { Choice, Status, Switch } from "../parts/controls.js";
import { RunField, useRuns } from "../parts/fields.js";
import { Confirm, ConfirmDiscard } from "../parts/overlays.js";
import { moved } from "../parts/reorder.js";
import { Empty, Failure, Loading } from "../parts/states.js";
import { withMoved } from "../parts/yaml_list.js";
import { Notes } from "../run/notes.js";
import { Board } from "./board.js";
import { ChartForm } from "./chart_form.js";
import { matching } from "./sources.js";

const EACH = 4,
  ASKED = 50,
  LOOKED = 1000; // names for a chart, names in all, and runs, when a run is looked for

const NEW = {
  name: "",
  builtin: false,
  mistake: null,
  dashboard: null,
  yaml: `title: My dashboard
charts:
  - title: Loss
    keys: ["*loss"]
  - title: Step time (p50, p99)
    spans: [train.step]
    quantiles: [0.5, 0.99]
    wide: true
`,
};

const REPORT = `title: My report
text: |
  # What we tried

  The text is Markdown. A block is a chart of the runs that a filter picks:

  \`\`\`chart
  trainer/loss
  where: project = PROJECT and tag = baseline
  \`\`\`

  or of runs by their ids (\`runs: ID, ID\`); without either, of the run that is chosen above.
charts: []
`;

// A new dashboard: a report, or of one metric, where a chart is to be the first of it.
const newOf = (kind, key) =>
  kind === "report"
    ? { ...NEW, yaml: REPORT }
    : key
      ? {
          ...NEW,
          yaml: `title: My dashboard\ncharts:\n  - title: ${JSON.stringify(key)}\n    keys: [${JSON.stringify(key)}]\n`,
        }
      : NEW;

export default function Dashboards({ parts, query }) {
  const name = parts[0] || (query.get("new") ? "" : "rl");
  const [edit, setEdit] = useParam("edit");
  const { may } = useAccess();
  const list = useFetch((signal) => get("dashboards", {}, signal).then((answer) => answer.dashboards), []);
  const one = useFetch(
    (signal) =>
      name
        ? get(`dashboards/${encodeURIComponent(name)}`, {}, signal)
        : Promise.resolve(newOf(query.get("new"), query.get("key"))),
    [name, query.get("new"), query.get("key")],
  );
  const runs = useRuns();
  const [draft, setDraft] = useState(null);
  useEffect(() => setDraft(null), [name, edit]);
  const source = one.value && one.value.name === name ? one.value : null;
  const board = draft || source?.dashboard;
  const saved = (as) => {
    list.reload();
    if (as === name) {
      one.reload();
      setEdit("");
    } else go(href("dashboards", as, { run: query.get("run") }));
  };
  return html`<div class="page dash">
    <div class="page-head">
      <h1 class="sr">Dashboards</h1>
      <nav class="dash-tabs" aria-label="Dashboards">
        ${(list.value || []).map(
          (each) => html`<a key=${each.name} href=${href("dashboards", each.name, { run: query.get("run") })}
              aria-current=${each.name === name ? "page" : undefined}
          class=${each.mistake ? "wrong" : ""}
              title=${each.mistake ? `Line ${each.mistake.line}: ${each.mistake.message}` : each.text}>${each.title}
                ${each.mistake ? " ✕" : ""}</a>`,
        )}
        ${list.error && html`<span class="bad-text">${list.error.message}</span>`}
        <${May}><a href=${href("dashboards", { new: 1, edit: 1, run: query.get("run") })}
            aria-current=${!name && query.get("new") !== "report" ? "page" : undefined}>+ New</a>
        <a href=${href("dashboards", { new: "report", edit: 1, run: query.get("run") })}
            title="A text with charts of several runs in it"
            aria-current=${!name && query.get("new") === "report" ? "page" : undefined}>+ Report</a><//>
      </nav>
    </div>
    ${
      one.error
        ? html`<div class="panel"><${Failure} error=${one.error} reload=${one.reload} /></div>`
        : !source
          ? html`<${Loading} what="Loading the dashboard" />`
          : html`<${Shown} source=${source} board=${board} runs=${runs} edit=${(edit === "1" || !name) && may("admin")}
              onEdit=${(on) => (name ? setEdit(on ? "1" : "") : go(href("dashboards")))}
            onDraft=${setDraft} onSaved=${saved} onDeleted=${() => {
              list.reload();
              go(href("dashboards"));
            }} />`
    }
  </div>`;
}

function Shown({ source, board, runs, edit, onEdit, onDraft, onSaved, onDeleted }) {
  const [run] = useParam("run"),
    [x] = useParam("x"),
    [empty, setEmpty] = useParam("empty");
  // A zoom belongs to a run and to what runs along x.
  const setRun = (next) => change({ run: next, from: null, to: null }),
    setX = (next) => change({ x: next, from: null, to: null });
  const best = useBestRun(run, runs.value, board);
  const shown = run || best;
  // Charts are moved in the text that is edited; the editor says how.
  const mover = useRef(/** @type {((from: number, to: number) => void) | null} */ (null));
  const known = runs.value?.find((each) => each.id === shown);
  return html`
    <div class="toolbar dash-bar" role="group" aria-label="Dashboard options">
      <${RunField} value=${run} onChange=${setRun} runs=${runs.value}
          empty=${known && !run ? known.name || known.id : "newest run"} />
      ${known && html`<a href=${href("run", shown)} class="dash-run"><${Status} run=${known} /></a>`}
      <${Choice} label="x" value=${x || board?.x || "step"} options=${[
        ["step", "Step"],
        ["relative", "Relative"],
        ["time", "Time"],
      ]} onChange=${(next) => setX(next === board?.x ? "" : next)} />
      <${Switch} label="Empty charts" on=${empty === "show"} onChange=${(on) => setEmpty(on ? "show" : "")}
          title="Show charts without data" />
      <span class="grow"></span>
      ${
        !edit &&
        html`<${May}><button type="button" class="button" onClick=${() => onEdit(true)}>
          ${source.builtin ? "Customize" : "Edit"}</button><//>`
      }
    </div>
    ${
      edit &&
      html`<${Editor} key=${source.name || source.yaml} source=${source} onDraft=${onDraft} onSaved=${onSaved} onDeleted=${onDeleted}
          board=${board} mover=${mover} onClose=${() => onEdit(false)} />`
    }
    ${
      !board
        ? !edit &&
          html`<div class="panel">
            <${Empty} title="This dashboard cannot be read">
              ${`Line ${source.mistake?.line}: ${source.mistake?.message}`}
        <${May}><p><button type="button" class="button" onClick=${() => onEdit(true)}>Edit it</button></p><//><//></div>`
        : runs.error && !shown
          ? html`<div class="panel"><${Failure} error=${runs.error} reload=${runs.reload} /></div>`
          : !shown
            ? runs.value && !runs.value.length
              ? html`<div class="panel">
                <${Empty}
                    title="No runs yet">Record a run to see it here. <a
                        href=${href("runs")}>How to record a run</a>
                <//>
              </div>`
              : html`<${Loading} what="Loading the newest run" />`
            : html`${board.text && html`<div class="dash-report"><${Notes} text=${board.text} runs=${known ? [known] : []} /></div>`}
            ${
              board.charts.length > 0 &&
              html`<${Board} board=${board} run=${shown} x=${x} hideEmpty=${empty !== "show"}
                onMove=${edit ? (from, to) => mover.current?.(from, to) : undefined} />`
            }`
    }`;
}

// The newest run that has what a dashboard shows: half as many of its charts as any run has, or more.
function useBestRun(chosen, runs, board) {
  const fetched = useFetch(
    async (signal) => {
      if (chosen || !runs?.length || !board) return null;
      const { metrics } = await get("fields", {}, signal),
        names = metrics.map((each) => each.name);
      const wanted = [...new Set(board.charts.flatMap((chart) => matching(chart.keys, names).slice(0, EACH)))].slice(
        0,
        ASKED,
      );
      if (!wanted.length) return runs[0].id;
      const found = await get("runs", { sort: "-seen", limit: LOOKED, metric: wanted }, signal);
      const counts = found.runs.map(
        ({ values }) => board.charts.filter((chart) => matching(chart.keys, Object.keys(values)).length).length,
      );
      return found.runs[counts.findIndex((many) => many >= Math.max(...counts) / 2)].id;
    },
    [chosen, runs?.length > 0, board?.title],
  );
  return fetched.value || "";
}

// A dashboard as text: checked while one writes, mistakes marked at their line, saved under a name.
export const NAME = /^[a-z0-9][a-z0-9_-]{0,62}$/;

// onDraft(dashboard) is called as the text changes, onSaved(name) when it was saved.
export function Editor({ source, board, mover, onDraft, onSaved, onDeleted, onClose }) {
  const [text, setText] = useState(source.yaml);
  const [name, setName] = useState(source.builtin || !source.name ? "" : source.name);
  const [mistake, setMistake] = useState(source.mistake);
  const [failure, setFailure] = useState("");
  const [busy, setBusy] = useState(false),
    [asking, setAsking] = useState("");
  const settled = useDebounced(text, 250);
  const lines = text.split("\n").length;
  const area = useRef(/** @type {HTMLTextAreaElement | null} */ (null)),
    gutter = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (!area.current) return;
    area.current.setSelectionRange(0, 0);
    area.current.focus();
    area.current.scrollTop = 0;
  }, []);
  useEffect(() => {
    let gone = false;
    post("dashboards", { yaml: settled }).then(
      (answer) => {
        if (gone) return;
        setMistake(answer.mistake);
        setFailure("");
        if (answer.dashboard) onDraft(answer.dashboard);
      },
      (error) => {
        if (!gone) setFailure(error.message);
      },
    );
    return () => {
      gone = true;
    };
  }, [settled]);

  mover.current = (from, to) => {
    const next = withMoved(text, "charts", board.charts.length, from, to);
    if (next === null)
      return setFailure("The charts are not lines of their own in this text: change their order there.");
    setText(next);
    onDraft({ ...board, charts: moved(board.charts, from, to) });
  };

  const put = async (method, body) =>
    fetchJson(address(`dashboards/${name}`), {
      method,
      headers: { "Content-Type": "application/json" },
      body: body && JSON.stringify(body),
    });
  const save = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await put("PUT", { yaml: text, ...(mine && { version: source.version }) });
      onSaved(name);
    } catch (error) {
      setFailure(error.message);
    }
    setBusy(false);
  };
  const remove = async () => {
    await put("DELETE");
    onDeleted();
  };
  const close = () => (text === source.yaml ? onClose() : setAsking("leave"));
  const keys = (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "s") {
      event.preventDefault();
      event.target.form.requestSubmit();
    } else if (event.key === "Escape") {
      event.preventDefault();
      close();
    }
  };
  const named = NAME.test(name);
  const mine = !source.builtin && source.name && name === source.name;
  return html`<form class="dash-editor panel" onSubmit=${save} aria-label="Edit the dashboard">
    <div class="dash-editor-bar">
      <label class="field"><span class="field-label">Name</span>
        <input value=${name} onInput=${(event) => setName(event.target.value.trim())} placeholder="my-dashboard"
            aria-invalid=${String(!!name && !named)} spellcheck=${false} autocomplete="off" />
        </label>
      <span class="grow"></span>
      <${ChartForm} text=${text} onText=${setText} />
      ${mine && html`<button type="button" class="button" onClick=${() => setAsking("delete")}>Delete…</button>`}
      <button type="button" class="button" onClick=${close}>Close</button>
      <button class="button primary" disabled=${!named || !!mistake || busy} title="Ctrl + S">Save</button>
    </div>
    <div class="dash-text">
      <div class="dash-gutter" ref=${gutter} aria-hidden="true">
        ${Array.from(
          { length: lines },
          (_, at) => html`<span key=${at} class=${mistake?.line === at + 1 ? "wrong" : ""}>${at + 1}</span>`,
        )}
      </div>
      <textarea ref=${area} value=${text} aria-label="The dashboard as YAML" aria-invalid=${String(!!mistake)}
          aria-describedby="dash-mistake" spellcheck=${false} wrap="off"
        onInput=${(event) => setText(event.target.value)} onKeyDown=${keys} onScroll=${(event) => {
          if (gutter.current) gutter.current.scrollTop = event.target.scrollTop;
        }}></textarea>
    </div>
    <p class=${"dash-mistake" + (mistake || failure ? " bad-text" : " muted")} id="dash-mistake" role="status">
      ${mistake ? `Line ${mistake.line}: ${mistake.message}` : failure || hint(name, named, source)}</p>
  </form>
  ${asking === "leave" && html`<${ConfirmDiscard} onDiscard=${onClose} onClose=${() => setAsking("")} />`}
  ${
    asking === "delete" &&
    html`<${Confirm} title=${`Delete the dashboard ${name}?`} action="Delete" act=${remove} onClose=${() => setAsking("")}>
      <p>It is deleted for everybody who uses this hub. Runs are not affected.</p><//>`
  }`;
}

function hint(name, named, source) {
  if (name && !named) return "Names consist of lower-case letters, digits, - and _, and start with a letter or digit.";
  if (!name)
    return source.builtin ? "Built-in dashboards are read-only: choose a new name." : "Enter a name to save it.";
  return "Valid. The preview below updates as you type.";
}
