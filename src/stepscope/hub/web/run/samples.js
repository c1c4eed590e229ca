// Samples of a run: a table of texts and numbers by step, searched, read whole, and beside another step or run.
import { html, useEffect } from "../h.js";
import { address, get, runPath } from "../api.js";
import { change, href, useParam } from "../router.js";
import { useDebounced, useFetch } from "../use.js";
import { IconButton, Search, Select } from "../parts/controls.js";
import { count, ordinal, plain } from "../parts/format.js";
import { Drawer } from "../parts/overlays.js";
import { Empty, Fetched } from "../parts/states.js";

const PAGE = 50,
  CHARS = 600, // of a text in the table
  WHOLE = 70000, // of one that is read
  SHOWN = 400, // rows of one prompt
  EVERY = 5000; // milliseconds between questions while the run goes on
const WORD = 24; // characters of a word that stands among the numbers, such as why an answer ended
const isBrief = (name) => /reason|id$|label|source|split|type|model|name/i.test(name);
const PROMPTS = ["prompt", "prompts", "input", "inputs", "question", "query", "problem", "instruction", "messages"];

export function Samples({ id, going }) {
  const [table] = useParam("table");
  const [on] = useParam("on");
  const [q] = useParam("q");
  const [sort] = useParam("sort");
  const [from] = useParam("from_row", "0");
  const [otherStep] = useParam("vs");
  const [otherRun] = useParam("vs_run");
  const search = useDebounced(q, 250);
  const given = { table, q: search, sort, limit: PAGE, offset: Number(from) || 0, chars: CHARS };
  // A search goes over all steps; what is compared has a step.
  const compares = Boolean(otherStep || otherRun) && !search;
  const asked = search
    ? given
    : { ...given, step: on, other_step: otherStep, other_run: otherRun, chars: compares ? 2 * CHARS : CHARS };
  const found = useFetch((signal) => get(runPath(id, "samples"), asked, signal), [id, JSON.stringify(asked)]);
  useEffect(() => {
    const ask = () => {
      if (!document.hidden && !found.loading) found.reload();
    };
    const timer = going && !on ? setInterval(ask, EVERY) : 0;
    return () => clearInterval(timer);
  }, [going, on, found.loading]);
  return html`<div class="samples">
    <${Fetched} fetched=${found} what="Loading samples">${(answer) =>
      answer.table === null
        ? html`<${Empty} title="No samples">Record some with <code>run.sample(prompt=…, completion=…, reward=…)</code><//>`
        : html`<section class="panel box" aria-label="Samples">
            <${Head} id=${id} answer=${answer} q=${q} sort=${sort} search=${search} otherStep=${otherStep} otherRun=${otherRun} />
            ${
              compares
                ? html`<${Beside} answer=${answer} id=${id} />`
                : html`<${Rows} answer=${answer} sort=${sort} search=${search} />`
            }
            <${Pages} answer=${answer} offset=${given.offset} search=${search} />
          </section>`}<//>
    <${Whole} id=${id} otherRun=${otherRun} />
  </div>`;
}

// The table, the step, the search, and what to compare with.
function Head({ id, answer, q, sort, search, otherStep, otherRun }) {
  const { tables, table, steps, step } = answer;
  const known = tables.find((each) => each.name === table);
  const columns = [
    ["", "by rank and time"],
    ...answer.columns.flatMap((name) => [
      ["-" + name, `${name} ↓`],
      [name, `${name} ↑`],
    ]),
  ];
  return html`<header class="sample-head">
    <div class="sample-line">
      <h2>${table} <span class="muted">${count(known.rows)} rows, ${count(known.steps)} ${known.steps === 1 ? "step" : "steps"}</span></h2>
      ${
        tables.length > 1 &&
        html`<${Select} label="Table" value=${table} options=${tables.map(({ name, rows }) => [name, `${name} (${count(rows)})`])}
          onChange=${(name) => change({ table: name, on: null, from_row: null, sort: null })} />`
      }
      <${Search} label="Search all steps" placeholder="Search all steps  /" value=${q}
        onChange=${(text) => change({ q: text, from_row: null })} />
      <${Select} label="Order" value=${sort} options=${columns} onChange=${(name) => change({ sort: name, from_row: null })} />
      <a href=${address(runPath(id, "export"), { what: "samples", format: "csv" })} download>Download CSV</a>
    </div>
    ${
      !search &&
      html`<${Steps} label="Step" steps=${steps} step=${step} onChange=${(next) => change({ on: next, from_row: null })} />
      <div class="sample-line">
        ${
          otherStep || otherRun
            ? html`<span class="muted">beside</span>
              <${Steps} label="Other step" steps=${otherRun ? NO_STEPS : steps} step=${answer.other_step}
                onChange=${(next) => change({ vs: next ?? steps.at(-1) })} />
              <button type="button" class="button" onClick=${() => change({ vs: null, vs_run: null })}>Stop comparing</button>`
            : steps.length > 1 &&
              html`<button type="button" class="button" onClick=${() => change({ vs: steps[0] ?? 0 })}>Compare with another step</button>`
        }
        <${OtherRun} value=${otherRun} />
      </div>`
    }
  </header>`;
}

const NO_STEPS = [];

// A slider over the steps that have rows; null is the last one, which follows the run.
function Steps({ label, steps, step, onChange }) {
  const last = steps.length - 1;
  const at = Math.max(
    0,
    steps.findLastIndex((each) => each === null || each <= step),
  );
  const choose = (index) => onChange(index >= last ? null : steps[index]);
  return html`<div class="sample-steps">
    <span class="sample-step">${label.toLowerCase()} <b>${ordinal(step)}</b></span>
    ${
      last > 0 &&
      html`<${IconButton} icon="left" label=${`${label}: earlier`} disabled=${at === 0} onClick=${() => choose(at - 1)} />
      <input type="range" min="0" max=${last} value=${at} aria-label=${label} aria-valuetext=${`step ${step}`}
        onInput=${(event) => choose(Number(event.target.value))} />
      <${IconButton} icon="right" label=${`${label}: later`} disabled=${at === last} onClick=${() => choose(at + 1)} />
      <span class="muted">${at + 1} of ${count(steps.length)}</span>`
    }
  </div>`;
}

// The id of another run whose answers to the same prompts are shown beside.
function OtherRun({ value }) {
  const take = (event) => change({ vs_run: event.target.value.trim() });
  return html`<label class="sample-other">another run
    <input type="text" value=${value} placeholder="run id" spellcheck=${false} autocomplete="off" onChange=${take} /></label>`;
}

function Rows({ answer, sort, search }) {
  const { columns, rows } = answer;
  if (!rows.length) return html`<${Empty} title=${search ? "No row has this text" : "No rows"} />`;
  const ranks = rows.some((row) => row.rank !== rows[0].rank);
  return html`<div class="sample-table" tabindex="0" role="region" aria-label="Rows"><table class="plain">
    <thead><tr>
      ${search && html`<th class="num">step</th>`}${ranks && html`<th class="num">rank</th>`}
      ${columns.map((name) => html`<th key=${name} class=${isNumber(rows, name) ? "num" : ""} aria-sort=${order(sort, name)}>${name}</th>`)}
      <th><span class="sr">open</span></th></tr></thead>
    <tbody>${rows.map(
      (row) => html`<tr key=${row.id + row.step} class="sample-row" onClick=${() => open(row)}>
        ${search && html`<td class="num">${ordinal(row.step)}</td>`}${ranks && html`<td class="num">${row.rank}</td>`}
        ${columns.map(
          (name) => html`<td key=${name} class=${typeof row.cells[name] === "number" ? "num" : ""}>
          <${Cell} row=${row} name=${name} /></td>`,
        )}
        <td><${IconButton} icon="wide" label="Read this row" onClick=${(event) => {
          event.stopPropagation();
          open(row);
        }} /></td></tr>`,
    )}</tbody></table></div>`;
}

const order = (sort, name) => (sort === name ? "ascending" : sort === "-" + name ? "descending" : undefined);
const isNumber = (rows, name) => rows.some((row) => typeof row.cells[name] === "number");
const open = (row) => change({ row: row.id, row_step: row.step }, { replace: false });

function Cell({ row, name }) {
  const value = row.cells[name];
  if (value === undefined) return null;
  if (typeof value === "string") return html`<div class="sample-text">${value}${row.cut[name] ? "…" : ""}</div>`;
  return plain(value);
}

// Each row beside those of the same prompt elsewhere.
function Beside({ answer, id }) {
  const { rows, others, columns } = answer;
  if (!rows.length) return html`<${Empty} title="No rows" />`;
  const prompt = columns.find((name) => PROMPTS.includes(name.toLowerCase()));
  const rest = columns.filter((name) => name !== prompt);
  const elsewhere = others[0]?.run ?? id;
  const there = `${elsewhere === id ? "" : elsewhere + ", "}step ${ordinal(answer.other_step)}`;
  const groups = grouped(rows);
  return html`<div class="sample-pairs">${groups.map(([key, mine]) => {
    const theirs = others.filter((row) => row.prompt !== null && row.prompt === key);
    return html`<article key=${key} class="sample-pair">
      ${prompt && html`<h3><${Cell} row=${mine[0]} name=${prompt} /></h3>`}
      <div class="sample-sides">
        <${Side} title=${`step ${ordinal(answer.step)}`} rows=${mine} columns=${rest} />
        <${Side} title=${there} rows=${theirs} columns=${rest} />
      </div></article>`;
  })}</div>`;
}

// Rows by prompt; one without a prompt stands alone.
function grouped(rows) {
  const found = new Map();
  for (const row of rows) {
    const key = row.prompt ?? row.id;
    found.set(key, [...(found.get(key) || []), row]);
  }
  return [...found];
}

function Side({ title, rows, columns }) {
  return html`<section class="sample-side" aria-label=${title}><h4 class="muted">${title}</h4>
    ${
      rows.length
        ? rows.map((row) => html`<${Fields} key=${row.id} row=${row} columns=${columns} />`)
        : html`<p class="muted">This prompt has no row there.</p>`
    }
  </section>`;
}

function Fields({ row, columns }) {
  const present = columns.filter((name) => row.cells[name] !== undefined),
    isText = (name) => typeof row.cells[name] === "string" && (row.cells[name].length > WORD || !isBrief(name)),
    texts = present.filter(isText),
    others = present.filter((name) => !isText(name));
  return html`<div class="sample-fields">
    ${texts.map(
      (name) => html`<div key=${name}><span class="muted">${name}</span>
      <div class="sample-whole">${row.cells[name] || html`<i class="muted">empty</i>`}${row.cut[name] ? "…" : ""}</div></div>`,
    )}
    ${
      others.length > 0 &&
      html`<p class="sample-numbers">
      ${others.map((name) => html`<span key=${name}><span class="muted">${name}</span> ${plain(row.cells[name])}</span>`)}</p>`
    }
  </div>`;
}

function Pages({ answer, offset, search }) {
  const { rows, next, searched_from } = answer;
  if (!offset && next === null && searched_from === null) return null;
  return html`<footer class="media-steps">
    <${IconButton} icon="left" label="Earlier rows" disabled=${!offset}
      onClick=${() => change({ from_row: Math.max(0, offset - PAGE) || null })} />
    <${IconButton} icon="right" label="Later rows" disabled=${next === null} onClick=${() => change({ from_row: offset + PAGE })} />
    <span class="muted">rows ${offset + 1} to ${offset + rows.length}</span>
    ${search && searched_from !== null && html`<span class="muted">Steps from ${searched_from} on were searched.</span>`}
  </footer>`;
}

// The row that the address names, with whole texts, and its prompt at other steps.
function Whole({ id, otherRun }) {
  const [table] = useParam("table");
  const [row] = useParam("row");
  const [step] = useParam("row_step");
  const fetched = useFetch(
    (signal) =>
      row
        ? get(runPath(id, "samples"), { table, step, id: row, chars: WHOLE, limit: 1 }, signal)
        : Promise.resolve(null),
    [id, table, row, step],
  );
  if (!row) return null;
  const found = fetched.value?.rows[0];
  return html`<${Drawer} label="Sample" title=${found ? `Step ${ordinal(found.step)}, rank ${found.rank}` : "Sample"}
      onClose=${() => change({ row: null, row_step: null })}>
    <${Fetched} fetched=${fetched} what="Loading the row">${() =>
      found
        ? html`<div class="sample-drawer"><${Fields} row=${found} columns=${Object.keys(found.cells)} />
            ${found.step !== null && html`<p><a href=${href("run", id, { step: found.step })}>Inspect step ${found.step}</a></p>`}
            ${found.prompt && html`<${SamePrompt} id=${id} otherRun=${otherRun} row=${found} />`}</div>`
        : html`<${Empty} title="There is no such row" />`}<//>
  <//>`;
}

// All rows of one prompt, by step, of this run and of the one it is compared with.
function SamePrompt({ id, otherRun, row }) {
  const runs = [id, otherRun].filter(Boolean);
  const fetched = useFetch(
    (signal) => get("samples", { run: runs, prompt: row.prompt, table: row.table, chars: CHARS, limit: SHOWN }, signal),
    [row.prompt, row.table, runs.join(" ")],
  );
  return html`<${Fetched} fetched=${fetched} what="Loading the same prompt">${(answer) => {
    const rest = answer.columns.filter((name) => !PROMPTS.includes(name.toLowerCase()));
    const others = answer.rows.filter((each) => each.id !== row.id || each.run !== id);
    if (!others.length) return null;
    return html`<h3>The same prompt <span class="muted">${count(others.length)}${answer.next === null ? "" : " and more"}</span></h3>
      <ul class="sample-same">${others.map(
        (
          each,
        ) => html`<li key=${each.run + each.id}><h4 class="muted">${each.run === id ? "" : each.run + ", "}step ${ordinal(each.step)}</h4>
          <${Fields} row=${each} columns=${rest} /></li>`,
      )}</ul>`;
  }}<//>`;
}
