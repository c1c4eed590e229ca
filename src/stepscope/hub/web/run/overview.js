// What a run is: the use of its time, configuration, environment, commit, attempts and processes.
import { html, useState } from "../h.js";
import { Code, Folded, Search } from "../parts/controls.js";
import { clock, count, flat, lasting, number, ordinal, percent, plain } from "../parts/format.js";
import { Fetched, Empty } from "../parts/states.js";
import { Artifacts } from "./artifacts.js";
import { Checkpoints, Lineage } from "./checkpoints.js";
import { LiveSettings } from "./control.js";
import { Edits } from "./edit.js";
import { GPU } from "../runs/reduced.js";
import { spanColour } from "../trace/colours.js";

export function Overview({ run, keys, going, control, goodput }) {
  const { git, packages, ...rest } = run.environment || {};
  return html`<div class="overview">
    <${Goodput} fetched=${goodput} />
    <${Gpus} columns=${run.columns} />
    <${Checkpoints} run=${run} going=${going} />
    <${Artifacts} run=${run} going=${going} />
    <${LiveSettings} run=${run} control=${control} />
    <${Lineage} run=${run} />
    <${Settings} title="Configuration" settings=${run.config} empty="No configuration." />
    <${Settings} title="Environment" settings=${{ ...(git ? { git } : {}), ...rest }}
        empty="No environment recorded." />
    ${packages && html`<${Settings} title="Packages" settings=${packages} empty="No packages recorded." />`}
    <${Reproduce} environment=${run.environment || {}} />
    <${Attempts} run=${run} />
    <${Processes} run=${run} />
    <${OwnOverhead} keys=${keys} />
    <${Edits} run=${run} />
  </div>`;
}

const shellWord = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/**
 * The commands that start it again: the code as it was committed, and the command line.
 * @param {Record<string, any>} environment
 */
export function startingAgain({ "git.remote": remote, "git.commit": commit, argv }) {
  const words = Array.isArray(argv) ? argv.map(String) : [];
  return [
    remote && `git clone ${shellWord(remote)} code && cd code`,
    commit && `git checkout ${shellWord(commit)}`,
    words.length > 0 && ["python", ...words].map(shellWord).join(" "),
  ].filter(Boolean);
}

function Reproduce({ environment }) {
  const commands = startingAgain(environment);
  if (!environment["git.commit"] || !commands.length) return null;
  return html`<section class="panel box" aria-label="Reproduce"><header class="box-head"><h2>Reproduce</h2></header>
    <div class="box-body"><${Code} text=${commands.join("\n")} />
      <p class="muted">With <code>init(capture_code=True)</code> the uncommitted changes are the file <code>code/diff</code>${" "}
        under Files; <code>git apply</code> brings them back.</p></div></section>`;
}

// What the run used of its GPUs; nothing where it is not known that it has any.
function Gpus({ columns }) {
  if (!columns?.gpu_hours) return null;
  return html`<section class="panel box" aria-label="GPUs"><header class="box-head"><h2>GPUs</h2></header>
    <div class="box-body" tabindex="0" role="region" aria-label="Use of the GPUs"><table class="plain settings"><tbody>
      ${Object.entries(GPU).map(
        ([id, [title, meaning, text]]) => html`<tr key=${id}><th scope="row" title=${meaning}>${title}</th>
          <td class="mono">${columns[id] ? text(columns[id].value) : "unknown"}</td></tr>`,
      )}
    </tbody></table></div></section>`;
}

const wordsOf = (value) =>
  Array.isArray(value) && value.every((each) => typeof each === "string") ? value.join(" ") : plain(value);

function Settings({ title, settings, empty }) {
  const [search, setSearch] = useState("");
  const rows = flat(settings).filter(([key, value]) =>
    (key + " " + plain(value)).toLowerCase().includes(search.toLowerCase()),
  );
  const many = flat(settings).length;
  return html`<section class="panel box" aria-label=${title}>
    <header class="box-head"><h2>${title}</h2>
      ${
        many > 8 &&
        html`<${Search} label=${`Find in ${title.toLowerCase()}`} placeholder="Find" value=${search}
            onChange=${setSearch} shortcut="" />`
      }
    </header>
    ${
      !many
        ? html`<${Empty} title=${empty} />`
        : html`<div class="box-body" tabindex="0" role="region"
            aria-label=${`${title}, each setting`}><table class="plain settings"><tbody>
      ${rows.map(
        ([key, value]) =>
          html`<tr key=${key}><th scope="row">${key}</th>
            <td class="mono">
              <${Folded} text=${wordsOf(value)} />
            </td>
          </tr>`,
      )}
    </tbody></table></div>`
    }
  </section>`;
}

function Attempts({ run }) {
  const attempts = new Map();
  for (const writer of run.writers) {
    const found = attempts.get(writer.attempt) || {
      number: writer.attempt,
      started: Infinity,
      seen: 0,
      ranks: new Set(),
      step: null,
    };
    found.started = Math.min(found.started, writer.started || Infinity);
    found.seen = Math.max(found.seen, writer.seen || 0);
    found.ranks.add(writer.rank);
    if (writer.step !== null && !(found.step >= writer.step)) found.step = writer.step;
    attempts.set(writer.attempt, found);
  }
  const ending = (number) =>
    [...new Set(run.endings.filter((end) => end.attempt === number).map((end) => end.status))].join(", ");
  const rows = [...attempts.values()].sort((a, b) => a.number - b.number);
  return html`<section class="panel box" aria-label="Attempts"><header class="box-head"><h2>Attempts</h2></header>
    <div class="box-body" tabindex="0" role="region"
        aria-label="Table of attempts">
          <table class="plain">
            <thead>
              <tr><th>attempt</th><th>began</th><th class="num">lasted</th><th class="num">ranks</th>
                <th class="num">last step</th><th>ended</th></tr>
            </thead>
            <tbody>
      ${rows.map(
        (row) => html`<tr key=${row.number}><td>${row.number}</td><td>${clock(row.started)}</td>
          <td class="num">${lasting(row.seen - row.started)}</td>
        <td class="num">${row.ranks.size}</td><td class="num">${ordinal(row.step)}</td>
        <td>
          ${
            ending(row.number) ||
            (row.number === run.attempts && run.status === "running"
              ? "running"
              : html`<span class="bad-text">no exit record</span>`)
          }
        </td>
        </tr>`,
      )}
    </tbody></table></div></section>`;
}

function Processes({ run }) {
  const writers = [...run.writers].sort((a, b) => a.rank - b.rank || a.attempt - b.attempt);
  return html`<section class="panel box" aria-label="Processes"><header class="box-head"><h2>Processes</h2></header>
    <div class="box-body" tabindex="0" role="region"
        aria-label="Table of processes">
          <table class="plain">
            <thead>
              <tr><th class="num">rank</th><th class="num">attempt</th><th>host</th><th class="num">pid</th>
                <th class="num">step</th><th class="num">points</th><th class="num">spans</th><th>last seen</th></tr>
            </thead>
            <tbody>
      ${writers.slice(0, 500).map(
        (writer) => html`<tr key=${writer.id}><td class="num">${writer.rank}</td><td class="num">${writer.attempt}</td>
          <td>${writer.host}</td><td class="num">${writer.pid}</td>
        <td class="num">${ordinal(writer.step)}</td><td class="num">${count(writer.counts.points)}</td>
          <td class="num">${count(writer.counts.spans)}</td><td>${clock(writer.seen)}</td></tr>`,
      )}
    </tbody></table></div></section>`;
}

// What Stepscope took of the time of the training processes, as they measured it themselves.
const OWN = "stepscope/overhead/";
/** From this share on, which is the default of `overhead_budget`, the page says how copies are avoided. */
const COPIES_SHARE = 0.005;

function OwnOverhead({ keys }) {
  const parts = keys.filter(({ key, last }) => key.startsWith(OWN) && last !== null);
  if (!parts.length) return null;
  const isTotal = ({ key }) => Number(key === OWN + "total");
  const copies = parts.find(({ key, max }) => key === OWN + "copies" && max > COPIES_SHARE);
  parts.sort((a, b) => isTotal(b) - isTotal(a) || b.last - a.last);
  return html`<section class="panel box" aria-label="Overhead of Stepscope">
    <header class="box-head"><h2>Overhead of Stepscope</h2><span class="muted">share of the time of a process</span></header>
    <div class="box-body" tabindex="0" role="region" aria-label="Table of overhead"><table class="plain">
      <thead><tr><th>part</th><th class="num">last, mean of ranks</th><th class="num">most</th></tr></thead>
      <tbody>${parts.map(
        ({ key, last, max }) => html`<tr key=${key}><td>${key.slice(OWN.length).replaceAll("_", " ")}</td>
          <td class="num">${percent(last)}</td><td class="num">${percent(max)}</td></tr>`,
      )}
    </tbody></table>
    ${
      copies &&
      html`<p class="muted">Copying logged arrays took up to ${percent(copies.max)} of the time. <code>Image(array, copy=False)</code>${" "}
      copies nothing, if the array is not changed afterwards.</p>`
    }</div></section>`;
}

// Goodput: the shares of time in one bar, and the phases that took most.
const BUCKETS = [
  ["productive", "training, or generating training data"],
  ["overhead", "necessary work other than training: evaluation, checkpoints, synchronization"],
  ["idle", "waiting, for example for data"],
  ["wasted", "lost work: spans with train.bucket = wasted; steps repeated after a crash are not counted"],
  ["unaccounted", "time that no classified span covers"],
];
const PHASES = 8;

function Goodput({ fetched }) {
  return html`<section class="panel box goodput" aria-label="Goodput">
    <header class="box-head"><h2>Goodput</h2>
      ${fetched.value && html`<span class="muted">${rates(fetched.value)}</span>`}</header>
    <div class="box-body" tabindex="0" role="region"
        aria-label="Time by use"><${Fetched} fetched=${fetched} what="Computing goodput">${(found) => html`
      <${Band} found=${found} />
      ${
        found.shares.unaccounted > 0.999 &&
        html`<p class="muted">No spans are classified, so this time cannot be attributed. <code>run.span("train.forward")</code> and the
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
      phases.length > PHASES &&
      html`<tr><td class="muted" colspan="3">${phases.length - PHASES} shorter phases</td></tr>`
    }
  </tbody></table>`;
}

function rates(found) {
  const parts = [];
  if (found.steps_per_second) parts.push(`${number(found.steps_per_second, 3)} steps/s`);
  if (found.tokens_per_second)
    parts.push(
      `${number(found.tokens_per_second, 3)} tokens/s${found.tokens_counted ? " (from the increase of a counter)" : ""}`,
    );
  parts.push(`${lasting(found.seconds)} over all ranks`);
  return parts.join(" · ");
}
