// The columns of the table of runs: which there are, how each is drawn, and which of them are shown.
import { html, useState } from "../h.js";
import { href } from "../router.js";
import { Status } from "../parts/controls.js";
import { ago, clock, count, counted, lasting, ordinal, plain, quantity } from "../parts/format.js";
import { lastText } from "../parts/last.js";
import { tagText } from "../run/edit.js";
import { GPU, reducedAmong, reducedColumn, ReducedForm, reducedOf } from "./reduced.js";
import { isRateKnown, rate, Spark } from "./sparks.js";

/** The setting at a dotted path; undefined where there is none. */
export const settingAt = (settings, path) =>
  path.split(".").reduce((inside, name) => inside?.[name], settings) ?? settings?.[path];

const LONG = 28, // characters of a name
  END = 10;

// A link to a run. Names often differ at their end only, so that a long one that does not fit is cut before it.
function runLink(run) {
  const name = run.name || run.id,
    letters = [...name],
    cut = letters.length > LONG ? letters.length - END : letters.length;
  return html`<a class="run-link" tabindex="-1" href=${href("run", run.id)} title=${cut < letters.length ? name : undefined}
      aria-label=${name}><span class="name-start">${letters.slice(0, cut).join("")}</span>${
        cut < letters.length && html`<span>${letters.slice(cut).join("")}</span>`
      }</a>`;
}

const FIXED = {
  status: { title: "status", width: "118px", sortable: "status", cell: (run) => html`<${Status} run=${run} />` },
  name: {
    title: "run",
    width: "minmax(190px, 2fr)",
    sortable: "name",
    cell: (run) => html`${runLink(run)}<span class="muted run-project">${run.project}</span>`,
  },
  step: {
    title: "step",
    width: "84px",
    align: "right",
    sortable: "step",
    cell: (run) => html`<span>${ordinal(run.step)}</span>`,
  },
  rate: {
    title: "steps/s",
    width: "72px",
    align: "right",
    hint: "Recent rate while running, else over the whole run",
    cell: (run, { rates }) =>
      isRateKnown(run, rates.has(run.id))
        ? html`<span>${rate(run, rates.get(run.id))}</span>`
        : html`<span class="spark-wait" style=${{ width: "32px" }} aria-hidden="true"></span>`,
  },
  spark: {
    title: "trend",
    width: "130px",
    cell: (run, { sparks }) =>
      html`<${Spark} spark=${sparks?.get(run.id)} waiting=${sparks !== null && !sparks.has(run.id)} />`,
  },
  findings: {
    title: "findings",
    width: "74px",
    align: "right",
    sortable: "findings",
    cell: (run) =>
      run.findings
        ? html`<span
            class=${run.worst_finding === "WARN" ? "warn-text" : "bad-text"}
            title=${`worst: ${run.worst_finding}`}
            >▲ ${count(run.findings, { brief: true })}</span
          >`
        : html`<span class="muted">–</span>`,
  },
  alerts: {
    title: "alerts",
    width: "62px",
    align: "right",
    sortable: "alerts",
    cell: (run) =>
      run.counts.alerts
        ? html`<span class="bad-text">⚑ ${count(run.counts.alerts, { brief: true })}</span>`
        : html`<span class="muted">–</span>`,
  },
  duration: {
    title: "duration",
    width: "84px",
    align: "right",
    sortable: "duration",
    cell: (run) => html`<span>${lasting(run.duration)}</span>`,
  },
  started: {
    title: "started",
    width: "92px",
    align: "right",
    sortable: "started",
    cell: (run, { now }) => html`<span title=${clock(run.started, { exact: true })}>${ago(run.started, now)}</span>`,
  },
  tags: { title: "tags", width: "minmax(150px, 1.3fr)", cell: tagCell },
  notes: {
    title: "notes",
    width: "minmax(120px, 1fr)",
    sortable: "notes",
    cell: (run) => html`<span title=${run.notes}>${run.notes}</span>`,
  },
  group: { title: "group", width: "110px", sortable: "group", cell: (run) => html`<span>${run.group || ""}</span>` },
  ranks: {
    title: "ranks",
    width: "56px",
    align: "right",
    sortable: "ranks",
    cell: (run) => html`<span>${run.ranks}</span>`,
  },
  attempts: {
    title: "attempts",
    width: "72px",
    align: "right",
    sortable: "attempts",
    cell: (run) => html`<span>${run.attempts}</span>`,
  },
  hosts: {
    title: "hosts",
    width: "110px",
    sortable: "hosts",
    cell: (run) => html`<span>${run.hosts.join(", ")}</span>`,
  },
  points: {
    title: "points",
    width: "80px",
    align: "right",
    sortable: "points",
    cell: (run) => html`<span>${count(run.counts.points, { brief: true })}</span>`,
  },
  id: { title: "id", width: "190px", sortable: "id", cell: (run) => html`<code>${run.id}</code>` },
};

export const DEFAULTS = [
  "status",
  "name",
  "step",
  "rate",
  "metrics",
  "spark",
  "findings",
  "alerts",
  "duration",
  "started",
  "tags",
];

const REDUCERS = { min: "lowest", max: "highest", best: "best" };

// The reducer and the metric of a column such as min.KEY.
function reducedBy(id) {
  const [name, key = ""] = id.split(/\.(.*)/s);
  return name in REDUCERS && key ? [name, key] : ["", ""];
}

/** The metrics whose values some columns show. */
export const metricsOf = (ids) => [
  ...new Set(
    ids.flatMap((id) => (reducedOf(id) ? [] : id.startsWith("metrics.") ? [id.slice(8)] : reducedBy(id)[1] || [])),
  ),
];

// A column by its name: a fixed one, metrics.KEY (its last value), min.KEY, max.KEY, best.KEY, one that is computed or config.PATH.
export function column(id, given) {
  const make = (fields) => ({ id, ...fields, cell: (run) => fields.cell(run, given) });
  if (FIXED[id]) return make(FIXED[id]);
  const reduced = reducedOf(id);
  if (reduced) return make(reducedColumn(id, reduced));
  if (id.startsWith("metrics.")) {
    const key = id.slice(8);
    return make({
      title: key.slice(key.indexOf("/") + 1),
      hint: key,
      width: "96px",
      align: "right",
      sortable: id,
      cell: (run) => value(run.values[key]),
    });
  }
  const [reducer, key] = reducedBy(id);
  if (reducer) {
    return make({
      title: `${reducer} ${key.slice(key.indexOf("/") + 1)}`,
      hint: `${REDUCERS[reducer]} ${key}, over all ranks and attempts`,
      width: "104px",
      align: "right",
      sortable: id,
      cell: (run) => {
        const found = run.values[key],
          extreme = found?.[reducer] ?? null;
        return extreme === null
          ? html`<span class="muted">–</span>`
          : html`<span class="mono">${quantity(extreme, found.key, found.unit)}</span>`;
      },
    });
  }
  if (id.startsWith("config.")) {
    return make({
      title: id.slice(7),
      hint: id,
      width: "104px",
      align: "right",
      sortable: id,
      cell: (run) => html`<span>${plain(settingAt(run.config, id.slice(7)))}</span>`,
    });
  }
  return null;
}

function value(latest) {
  if (!latest) return html`<span class="muted">–</span>`;
  const odd = typeof latest.value === "string";
  return html`<span class=${"mono" + (odd ? " bad-text" : "")}
    title=${`${latest.key}: ${lastText(latest.ranks, latest.step)}`}
    >${quantity(latest.value, latest.key, latest.unit)}</span>`;
}

// A run in two lines: its name, and below it how it goes.
export const FACTS = 4; // values beside findings and age; those that do not fit are left out

// Whether a column is a value of a metric or a setting, which stand in the second line.
export const isFact = (id) => isOfMetric(id) || id.startsWith("config.");

const isOfMetric = (id) => metricsOf([id]).length > 0 || reducedOf(id) !== null;

function isThere(run, id) {
  if (reducedOf(id)) return run.columns?.[id];
  return id.startsWith("config.") ? settingAt(run.config, id.slice(7)) !== undefined : run.values[metricsOf([id])[0]];
}

export function twoLines(ids, given) {
  const facts = ids.filter(isFact).map((id) => ({ id, ...column(id, given) }));
  return {
    id: "name",
    title: "run",
    width: "minmax(0, 1fr)",
    cell: (run) => html`<div class="run-two">
      <div>${runLink(run)}<span class="muted run-project">${run.project}</span></div>
      <div class="run-state">
        <span class="run-facts">${facts
          .filter(({ id }) => isThere(run, id))
          .slice(0, FACTS)
          .map(
            ({ id, title, cell }) =>
              html`<span key=${id} class="run-fact"><span class="muted">${title}</span>${" "}${cell(run)}</span>`,
          )}</span>
        ${run.findings ? FIXED.findings.cell(run) : html`<span class="muted run-fine">no findings</span>`}
        <span class="grow"></span><span class="run-age">${FIXED.started.cell(run, given)}</span></div>
    </div>`,
  };
}

const SCORE = /acc(uracy)?$|score|perplexity|kl$/;

// The metrics that are shown when nobody chose: what the hub takes for the loss and the reward of each run, and a score.
export function usualMetrics(metrics) {
  const own = metrics.map(({ name }) => name).filter((name) => !/^(stepscope|system)\//.test(name));
  const usual = Object.entries({ loss: /loss|nll|cross.?entropy/i, reward: /rew(ard)?|return/i });
  const aliases = usual.filter(([, test]) => own.some((name) => test.test(name))).map(([name]) => name);
  const found = [...aliases, own.find((name) => SCORE.test(name))].filter(Boolean);
  return found.length ? found : own.slice(0, 2);
}

export const groupOf = (run, by) =>
  by.startsWith("tag.")
    ? plain(run.tags[by.slice(4)])
    : by.startsWith("config.")
      ? plain(settingAt(run.config, by.slice(7)))
      : by === "hosts"
        ? run.hosts.join(", ")
        : plain(run[by]);

// Which columns the table has; with `values` only metrics and settings.
export function Chooser({ chosen, fields, onChange, onReset, values = false }) {
  const [search, setSearch] = useState("");
  const fits = (name) => name.toLowerCase().includes(search.toLowerCase());
  const toggle = (id) => onChange(chosen.includes(id) ? chosen.filter((each) => each !== id) : placed(chosen, id));
  const group = (title, list) =>
    list.length > 0 &&
    html`<h3>${title}</h3>${list.slice(0, 80).map(
      ([id, text, hint]) => html`<label key=${id}>
    <input type="checkbox" checked=${chosen.includes(id)} disabled=${id === "name"} onChange=${() => toggle(id)} />
      <span class="wide-name" title=${text}>${text}</span><span class="muted">${hint}</span></label>`,
    )}`;
  return html`<div class="chooser">
    <input type="search" aria-label="Find a column" placeholder="Find a column" value=${search}
        onInput=${(event) => setSearch(event.target.value)} />
    ${group(
      "Run",
      Object.entries(values ? {} : FIXED)
        .filter(([, each]) => fits(each.title))
        .map(([id, each]) => [id, each.title, ""]),
    )}
    ${group(
      "Metrics",
      fields.metrics.filter(({ name }) => fits(name)).map(({ name, runs }) => ["metrics." + name, name, count(runs)]),
    )}
    ${group(
      "Best, lowest and highest",
      metricsOf(chosen)
        .concat(search ? fields.metrics.map(({ name }) => name).filter(fits) : [])
        .filter((name, at, all) => all.indexOf(name) === at)
        .flatMap((name) => Object.keys(REDUCERS).map((reducer) => [`${reducer}.${name}`, `${reducer} ${name}`, ""]))
        .filter(([, text]) => fits(text)),
    )}
    ${group(
      "Computed",
      [...new Set([...reducedAmong(chosen), ...Object.keys(GPU)])]
        .map((id) => [id, reducedColumn(id, /** @type {any} */ (reducedOf(id))).title, ""])
        .filter(([id, text]) => chosen.includes(id) || fits(text)),
    )}
    ${group(
      "Configuration",
      fields.config.filter(({ name }) => fits(name)).map(({ name, runs }) => ["config." + name, name, count(runs)]),
    )}
    <${ReducedForm} metrics=${fields.metrics} onAdd=${(id) => !chosen.includes(id) && toggle(id)} />
    <button type="button" class="item" onClick=${onReset}>Reset</button></div>`;
}

// A metric goes beside the other metrics, anything else to the end.
function placed(chosen, id) {
  if (!isOfMetric(id)) return [...chosen, id];
  const at = Math.max(chosen.findLastIndex(isOfMetric), chosen.indexOf("rate"), chosen.indexOf("step"), 0) + 1;
  return [...chosen.slice(0, at), id, ...chosen.slice(at)];
}

// Tags in the table of runs: the cell, and what the filter completes.
const ROOM = 16, // characters that fit into the narrowest cell; each tag takes three more for its border
  BORDER = 3;

function tagCell(run) {
  const tags = Object.entries(run.tags || {}).map(([name, value]) => tagText(name, value));
  const shown = fitting(tags, ROOM - (run.archived ? "archived".length + BORDER : 0));
  return html`${run.archived && html`<span class="chip warn" key="archived">archived</span>`}
    ${tags.slice(0, shown).map((text) => html`<span class="chip" key=${text} title=${text}>${text}</span>`)}
    ${
      tags.length > shown &&
      html`<span class="muted tags-left" title=${tags.slice(shown).join(", ")}>+${tags.length - shown}</span>`
    }`;
}

// How many tags fit side by side: at least one, which is shortened when it is too long.
export function fitting(tags, room) {
  let used = 0,
    many = 0;
  while (many < tags.length && (used += tags[many].length + BORDER) <= room) many++;
  return Math.max(many, Math.min(tags.length, 1));
}

const spelled = (name) => (/^[\w.-]+$/.test(name) ? name : JSON.stringify(name));

export const tagFields = (fields) => [
  { name: "tag", hint: "has the tag" },
  ...(fields.tags || []).map(({ name, runs }) => ({ name: "tag." + spelled(name), hint: counted(runs) })),
];

// The values that a field of tags has in some rows; undefined when it is no such field.
export function tagValues(field, rows, fields) {
  if (field === "tag" || field === "tags") return (fields.tags || []).map(({ name }) => name);
  if (!field.startsWith("tag.")) return undefined;
  const name = field[4] === '"' ? JSON.parse(field.slice(4)) : field.slice(4);
  return [
    ...new Set(
      rows
        .slice(0, 2000)
        .map((run) => run.tags?.[name])
        .filter((value) => value !== undefined)
        .map(plain),
    ),
  ].slice(0, 200);
}
