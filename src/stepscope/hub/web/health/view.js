// Health: whether everything that was recorded arrives, and why the rest does not.
import { html, useEffect, useRef, useState } from "../h.js";
import { get } from "../api.js";
import { href } from "../router.js";
import { useFetch } from "../use.js";
import { ago, bytes, count, counted, lasting, number } from "../parts/format.js";
import { RunLink } from "../parts/run_names.js";
import { Failure, Loading } from "../parts/states.js";

const EVERY_MS = 2000,
  KEPT = 90;
const OUTCOMES = [
  ["written", "received"],
  ["stored", "stored"],
  ["retried", "retried"],
  ["rejected", "rejected"],
  ["dropped", "dropped"],
];

export default function Health() {
  const health = useFetch((signal) => get("health", {}, signal), []);
  const pipeline = useFetch((signal) => get("pipeline", {}, signal), []);
  const tables = useFetch((signal) => get("sql/tables", {}, signal), []);
  const past = useRef(/** @type {{ at: number, rate: number, lag: number }[]} */ ([]));
  const [, redraw] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) {
        health.reload();
        pipeline.reload();
      }
    }, EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => {
    if (!health.value) return;
    past.current = [
      ...past.current,
      { at: Date.now() / 1000, rate: health.value.store.records_per_second, lag: health.value.lag.seconds },
    ].slice(-KEPT);
    redraw((n) => n + 1);
  }, [health.value]);
  const value = health.value;
  return html`<div class="page health">
    <div class="page-head"><h1>Health</h1>
      ${value && html`<${Verdict} health=${value} pipeline=${pipeline.value} lost=${health.error} />`}</div>
    ${
      !value && health.error
        ? html`<div class="panel"><${Failure} error=${health.error} reload=${health.reload} /></div>`
        : !value
          ? html`<${Loading} what="Loading health" />`
          : html`
      <div class="health-cards">
        <${Figure} title="Stored" value=${count(total(value, "stored"))} text="records since start" />
        <${Figure} title="Rate" value=${number(value.store.records_per_second, 3)} text="records per second"
            line=${past.current.map((each) => each.rate)} />
        <${Figure} title="Lag" value=${lasting(value.lag.seconds)} text=${`${bytes(value.lag.bytes)} waiting`}
            bad=${value.lag.seconds > 10} line=${past.current.map((each) => each.lag)} />
        <${Figure} title="Rejected" value=${count(total(value, "rejected"))} text="records"
            bad=${total(value, "rejected") > 0} />
        <${Figure} title="Dropped" value=${count(total(value, "dropped"))} text="records or attributes"
            bad=${total(value, "dropped") > 0} />
        <${Figure} title="Quarantine" value=${pipeline.value ? count(pipeline.value.quarantined) : "–"}
            text="batches" bad=${pipeline.value?.quarantined > 0} />
        <${Figure} title="Store" value=${bytes(value.store.bytes)}
            text=${value.store.expired_runs ? `${counted(value.store.expired_runs)} expired` : "on disk"} />
        <${Figure} title="Journal" value=${bytes(value.journal.bytes)}
            text=${`of ${bytes(value.journal.limit_bytes)} at most`}
            share=${value.journal.bytes / value.journal.limit_bytes} />
      </div>
      <div class="health-parts">
        <${Receivers} receivers=${value.receivers} />
        <${Runs} runs=${value.runs} writers=${value.folder.writers} />
        <${Sinks} fetched=${pipeline} />
        <${Quarantine} fetched=${pipeline} />
        <${Tables} fetched=${tables} />
      </div>`
    }
  </div>`;
}

const total = (health, outcome) =>
  Object.values(health.receivers).reduce((sum, receiver) => sum + amount(receiver[outcome]), 0);
const amount = (counts) =>
  typeof counts === "object" && counts ? Object.values(counts).reduce((sum, each) => sum + each, 0) : counts || 0;

// One sentence that says whether anything needs a look.
function Verdict({ health, pipeline, lost }) {
  const stuck = (pipeline?.sinks || []).filter((sink) => sink.trouble);
  const found = lost
    ? ["bad", "The hub does not answer; showing its last report."]
    : health.trouble
      ? ["bad", health.trouble]
      : stuck.length
        ? ["warn", `${stuck.map((sink) => sink.sink).join(", ")}: ${stuck[0].trouble}`]
        : total(health, "rejected") + total(health, "dropped") + (pipeline?.quarantined || 0) > 0
          ? ["warn", "Running, but some records were rejected, dropped or quarantined."]
          : ["good", "Everything received is stored or queued."];
  const sign = { good: "✓", warn: "!", bad: "✕" }[found[0]];
  return html`<p class=${"health-verdict " + found[0]} role="status">
    <span aria-hidden="true">${sign}</span> ${found[1]}</p>
    <span class="grow"></span><span class="muted">up ${lasting(health.uptime_seconds)}</span>`;
}

function Figure({ title, value, text, bad, line, share }) {
  return html`<div class=${"health-card panel" + (bad ? " bad" : "")}>
    <span class="health-title">${title}</span><span class="health-value">${value}</span>
      <span class="health-text">${text}</span>
    ${line?.length > 1 && html`<${Spark} values=${line} />`}
    ${
      share !== undefined &&
      html`<span class="trace-meter" aria-hidden="true">
        <span
            style=${{
              width: Math.min(share, 1) * 100 + "%",
              background: share > 0.8 ? "var(--bad)" : "var(--accent)",
            }}>
            </span>
      </span>`
    }
  </div>`;
}

function Spark({ values }) {
  const most = Math.max(...values, 1e-9),
    width = 100,
    height = 22;
  const points = values
    .map(
      (value, at) =>
        `${((at + KEPT - values.length) / (KEPT - 1)) * width},${height - 1 - (value / most) * (height - 3)}`,
    )
    .join(" ");
  return html`<svg class="health-spark" viewBox="0 0 ${width} ${height}" preserveAspectRatio="none"
      aria-hidden="true"><polyline points=${points} /></svg>`;
}

function Part({ title, note, children, wide }) {
  return html`<section class=${"health-part panel" + (wide ? " wide" : "")}>
    <header><h2>${title}</h2>${note && html`<span class="muted">${note}</span>`}</header>
    <div class="health-scroll" tabindex="0" role="region" aria-label=${title}>${children}</div></section>`;
}

function Receivers({ receivers }) {
  const names = Object.keys(receivers).sort();
  return html`<${Part} title="Ingest" note="records by outcome">
    ${
      !names.length
        ? html`<p class="muted">Nothing received since the hub started.</p>`
        : html`<table class="plain"><thead><tr><th>receiver</th>
      ${OUTCOMES.map(([key, label]) => html`<th key=${key} class="num">${label}</th>`)}</tr></thead>
      <tbody>${names.map(
        (name) => html`<tr key=${name}><th scope="row">${name}</th>${OUTCOMES.map(
          ([key]) => html`<td key=${key}
              class=${
                "num" + (key !== "written" && key !== "stored" && amount(receivers[name][key]) ? " bad-text" : "")
              }>
        ${amount(receivers[name][key]) ? count(amount(receivers[name][key])) : html`<span class="muted">–</span>`}
        </td>`,
        )}</tr>
        ${reasons(receivers[name]).map(
          ([outcome, reason, many]) =>
            html`<tr key=${name + outcome + reason} class="health-reason"><td></td>
              <td colspan="5">${count(many)} ${outcome}: ${reason}</td></tr>`,
        )}`,
      )}</tbody></table>`
    }
  <//>`;
}

const reasons = (receiver) =>
  ["retried", "rejected", "dropped"].flatMap((outcome) =>
    typeof receiver[outcome] === "object"
      ? Object.entries(receiver[outcome]).map(([reason, many]) => [outcome, reason, many])
      : [],
  );

function Runs({ runs, writers }) {
  const states = Object.entries(runs).filter(([, many]) => many);
  return html`<${Part} title="Runs" note="seen since the hub started">
    <table class="plain"><tbody>
      ${states.map(
        ([state, many]) =>
          html`<tr key=${state}>
            <th scope="row"><a href=${href("runs", { filter: `status = ${state}` })}>${state}</a></th>
            <td class="num">${count(many)}</td></tr>`,
      )}
      ${!states.length && html`<tr><td colspan="2" class="muted">None yet.</td></tr>`}
      <tr><th scope="row">local journals followed</th><td class="num">${count(writers)}</td></tr>
    </tbody></table><//>`;
}

function Sinks({ fetched }) {
  const sinks = fetched.value?.sinks || [];
  return html`<${Part} title="Sinks" note="where this machine's records are delivered" wide>
    ${
      fetched.error && !fetched.value
        ? html`<p class="bad-text">${fetched.error.message}</p>`
        : !sinks.length
          ? html`<p
              class="muted">No sinks configured. Set <code>sinks</code> to deliver elsewhere.</p>`
          : html`<table class="plain">
            <thead>
              <tr><th>sink</th><th>to</th><th>host</th><th class="num">delivered</th><th class="num">rejected</th>
                <th class="num">dropped</th><th class="num">waiting</th><th>last seen</th><th>last error</th></tr>
            </thead>
        <tbody>${sinks.map(
          (sink) => html`<tr key=${sink.sink + sink.host}><th scope="row">${sink.sink}</th><td>${sink.place}</td>
            <td>${sink.host}</td><td class="num">${count(sink.counts.written || 0)}</td>
          <td class=${"num" + (sink.counts.rejected ? " bad-text" : "")}>${count(sink.counts.rejected || 0)}</td>
            <td class=${"num" + (sink.counts.dropped ? " bad-text" : "")}>${count(sink.counts.dropped || 0)}</td>
          <td class="num">${sink.unread < 0 ? "–" : bytes(sink.unread)}</td><td>${ago(sink.time)}</td>
            <td class=${sink.trouble ? "warn-text" : "muted"}>${sink.trouble || "none"}</td></tr>`,
        )}</tbody></table>`
    }
  <//>`;
}

function Quarantine({ fetched }) {
  const entries = fetched.value?.quarantine || [];
  return html`<${Part} title="Quarantine"
      note=${
        entries.length
          ? `${count(fetched.value.quarantined)} batches; retry with stepscope quarantine retry`
          : "records rejected by sinks and store"
      }
      wide>
    ${
      !entries.length
        ? html`<p class="muted">Nothing quarantined.</p>`
        : html`<table class="plain">
          <thead><tr><th>when</th><th>sink</th><th>run</th><th class="num">records</th><th>reason</th></tr></thead>
      <tbody>
        ${entries.map(
          (entry) =>
            html`<tr key=${entry.sink + entry.id}><td>${ago(entry.time)}</td><td>${entry.sink}</td>
              <td><${RunLink} id=${entry.run} /></td><td class="num">${count(entry.records)}</td><td>${entry.reason}</td>
            </tr>`,
        )}
      </tbody>
      </table>`
    }
  <//>`;
}

function Tables({ fetched }) {
  const tables = (fetched.value?.tables || []).filter((table) => table.rows).sort((a, b) => b.bytes - a.bytes);
  const most = Math.max(1, ...tables.map((table) => table.bytes));
  return html`<${Part} title="Store" note="by table" wide>
    ${
      fetched.error
        ? html`<p class="bad-text">${fetched.error.message}</p>`
        : !tables.length
          ? html`<p class="muted">${fetched.loading ? "Measuring…" : "Empty."}</p>`
          : html`<table class="plain">
            <thead><tr><th>table</th><th class="num">rows</th><th class="num">bytes</th><th></th></tr></thead>
      <tbody>${tables.map(
        (table) => html`<tr key=${table.name}>
          <th scope="row"><a href=${href("sql", { q: `SELECT * FROM ${table.name} LIMIT 100` })}>${table.name}</a></th>
          <td class="num">${count(table.rows)}</td><td class="num">${bytes(table.bytes)}</td>
        <td class="health-meter">
          <span class="trace-meter" aria-hidden="true">
            <span style=${{ width: (table.bytes / most) * 100 + "%", background: "var(--series-1)" }}></span></span>
        </td>
        </tr>`,
      )}</tbody></table>`
    }
  <//>`;
}
