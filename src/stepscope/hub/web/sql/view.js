// SQL: a read-only console with the tables beside it; errors are shown under the statement.
import { html, useEffect, useRef, useState } from "../h.js";
import { get, post } from "../api.js";
import { useParam } from "../router.js";
import { useFetch, useSavedChoice } from "../use.js";
import { Choice, Icon, Menu, Select } from "../parts/controls.js";
import { count, millis } from "../parts/format.js";
import { Empty, Failure, Loading } from "../parts/states.js";
import { asCsv, download, isNumber, ResultChart, ResultTable } from "./results.js";

const EXAMPLES = [
  [
    "Metrics of each run",
    `SELECT r.id AS run, s.key AS key, count() AS points, min(m.value) AS least, max(m.value) AS most
FROM metrics AS m
INNER JOIN series AS s ON s.series = m.series
INNER JOIN runs AS r ON r.run = s.run
GROUP BY run, key ORDER BY run, key`,
  ],
  [
    "Slowest span names",
    `SELECT name, count() AS spans, quantile(0.5)(duration) / 1e6 AS p50_ms, quantile(0.99)(duration) / 1e6 AS p99_ms
FROM spans GROUP BY name ORDER BY p99_ms DESC LIMIT 50`,
  ],
  [
    "Step time along a run",
    `SELECT step, max(duration) / 1e6 AS slowest_ms, min(duration) / 1e6 AS fastest_ms
FROM spans WHERE name = 'train.step' AND step >= 0
GROUP BY step ORDER BY step`,
  ],
  [
    "Values that are not finite",
    `SELECT s.key AS key, m.step AS step, m.value AS value
FROM metrics AS m INNER JOIN series AS s ON s.series = m.series
WHERE NOT isFinite(m.value) ORDER BY step LIMIT 1000`,
  ],
  ["Errors in the logs", `SELECT run, rank, step, body FROM logs WHERE severity >= 17 ORDER BY time DESC LIMIT 200`],
];

export default function Sql() {
  const [shared, setShared] = useParam("q"),
    [view, setView] = useParam("view", "table"),
    [rows, setRows] = useParam("rows", "1000");
  const [text, setText] = useState(shared || EXAMPLES[1][1]);
  const [history, setHistory] = useSavedChoice("sql", /** @type {string[]} */ ([]));
  const [state, setState] = useState(
    /** @type {{ answer: any, error: any, busy: boolean, took: number }} */ ({
      answer: null,
      error: null,
      busy: false,
      took: 0,
    }),
  );
  const tables = useFetch((signal) => get("sql/tables", {}, signal), []);
  const area = useRef(/** @type {HTMLTextAreaElement | null} */ (null)),
    control = useRef(/** @type {AbortController | null} */ (null)),
    ran = useRef("");
  const run = async (statement = text) => {
    control.current?.abort();
    const mine = new AbortController();
    control.current = mine;
    const began = performance.now();
    ran.current = statement;
    setShared(statement);
    setState((old) => ({ ...old, busy: true, error: null }));
    try {
      const answer = await post("sql", { sql: statement, rows: Number(rows) }, mine.signal);
      setState({ answer, error: answer.error ?? null, busy: false, took: performance.now() - began });
      setHistory((old) => [statement, ...old.filter((each) => each !== statement)].slice(0, 30));
    } catch (error) {
      if (error.name !== "AbortError") setState({ answer: null, error, busy: false, took: 0 });
    }
  };
  // The address changes by hand, by a link or by going back. A link only fills the box: the statement is read before it runs.
  useEffect(() => {
    if (shared && shared !== ran.current) setText(shared);
  }, [shared]);
  useEffect(() => () => control.current?.abort(), []);
  const insert = (word) => {
    if (!area.current) return;
    const { selectionStart: at, selectionEnd: end } = area.current;
    setText(text.slice(0, at) + word + text.slice(end));
    requestAnimationFrame(() => {
      area.current?.focus();
      area.current?.setSelectionRange(at + word.length, at + word.length);
    });
  };
  const keys = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      run();
    }
  };
  const choose = (statement) => {
    setText(statement);
    run(statement);
  };
  const { answer, error, busy } = state;
  return html`<div class="page fill sql">
    <div class="page-head"><h1>SQL</h1><span class="muted">ClickHouse's dialect, SELECT only</span>
      <span class="grow"></span>
      <${Menu} label="Examples" align="right">${(close) =>
        EXAMPLES.map(
          ([name, statement]) =>
            html`<button type="button" class="item" key=${name} onClick=${() => {
              close();
              choose(statement);
            }}>${name}</button>`,
        )}<//>
      <${Menu} label="History" align="right">${(close) =>
        history.length
          ? history.map(
              (statement) =>
                html`<button type="button" class="item sql-past mono" key=${statement} title=${statement}
                    onClick=${() => {
                      close();
                      choose(statement);
                    }}>${statement.replace(/\s+/g, " ").slice(0, 70)}</button>`,
            )
          : html`<p class="muted sql-words">Statements you run are listed here, in this browser only.</p>`}<//>
    </div>
    <div class="sql-main">
      <${Schema} fetched=${tables} onInsert=${insert} />
      <div class="sql-work">
        <div class=${"sql-editor panel" + (error ? " wrong" : "")}>
          <textarea ref=${area} class="mono" rows="7" value=${text} aria-label="Statement"
              aria-invalid=${String(!!error)} aria-describedby="sql-status" spellcheck=${false}
            onInput=${(event) => setText(event.target.value)} onKeyDown=${keys}></textarea>
          <div class="sql-bar">
            <button type="button" class="button primary" onClick=${() => run()} disabled=${busy || !text.trim()}
                title="Ctrl + Enter">Run</button>
            <${Select} label="At most" hidden=${false} value=${rows} options=${[
              ["100", "100 rows"],
              ["1000", "1,000 rows"],
              ["10000", "10,000 rows"],
            ]} onChange=${setRows} />
            <span id="sql-status" class=${"sql-status " + (error ? "bad-text" : "muted")}
                role=${error ? "alert" : "status"}>
                  ${
                    error
                      ? error.message
                      : busy
                        ? "Running…"
                        : answer
                          ? `${count(answer.rows.length)} rows${answer.more ? ", truncated" : ""} in ${millis(state.took)}`
                          : "Ctrl + Enter to run"
                  }
                </span>
            <span class="grow"></span>
            ${
              answer &&
              html`<${Choice} label="Show as" value=${view} options=${[
                ["table", "Table"],
                ["chart", "Chart"],
              ]} onChange=${setView} />
              <button type="button" class="button"
                  onClick=${() => download("stepscope.csv", asCsv(answer), "text/csv")}>CSV</button>`
            }
          </div>
        </div>
        <div class=${"sql-results" + (busy ? " busy" : "")}>${
          answer
            ? view === "chart" && answer.columns.some((column) => isNumber(column.type))
              ? html`<div class="panel sql-panel"><${ResultChart} answer=${answer} /></div>`
              : html`<${ResultTable} answer=${answer} />`
            : html`<div class="panel sql-panel">${
                busy
                  ? html`<${Loading} what="Running the query" />`
                  : error
                    ? html`<${Empty} title="Query failed">The error is shown under the statement.<//>`
                    : html`<${Empty}
                        title="No query yet">Write a SELECT, or start from an example.<//>`
              }</div>`
        }</div>
      </div>
    </div>
  </div>`;
}

// The tables that may be queried, their columns and sizes; a click puts a name where the cursor is.
function Schema({ fetched, onInsert }) {
  const [open, setOpen] = useState({ metrics: false });
  const tables = fetched.value?.tables || [];
  return html`<nav class="sql-schema panel" aria-label="Tables">
    <h2>Tables</h2>
    ${
      fetched.error
        ? html`<${Failure} error=${fetched.error} reload=${fetched.reload} />`
        : !fetched.value
          ? html`<p class="muted">Loading…</p>`
          : html`<ul>${tables.map(
              (table) => html`<li key=${table.name}>
      <div class="sql-table">
        <button type="button" class="sql-open" aria-expanded=${String(!!open[table.name])}
            onClick=${() => setOpen({ ...open, [table.name]: !open[table.name] })} title=${table.text}>
        <${Icon} name=${open[table.name] ? "down" : "right"} size=${10} /><span>${table.name}</span>
          <span class="muted">${count(table.rows, { brief: true })}</span></button>
        </div>
      ${
        open[table.name] &&
        html`<p class="sql-words">${table.text}</p><ul class="sql-columns">${table.columns.map(
          (column) => html`<li key=${column.name}>
        <button type="button" onClick=${() => onInsert(column.name)}
            title=${`Insert ${column.name}`}><span>${column.name}</span>
              <span class="muted">${brief(column.type)}</span></button>
        </li>`,
        )}</ul>`
      }
    </li>`,
            )}</ul>`
    }
  </nav>`;
}

const brief = (type) => type.replace(/AggregateFunction\((\w+),.*\)/, "state of $1");
