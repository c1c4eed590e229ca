// One run: its facts, findings and charts, and the selected step.
import { html, useEffect, useMemo, useRef, useState } from "../h.js";
import { get, quoted, runPath } from "../api.js";
import { change, go, href, useParam, useRoute } from "../router.js";
import { useFetch, useLive, usePollUntilComplete } from "../use.js";
import { clock, count, counted } from "../parts/format.js";
import { Fetched, Empty } from "../parts/states.js";
import { Charts } from "./charts.js";
import { useControl } from "./control.js";
import { Diagnosis } from "./diagnosis.js";
import { edit } from "./edit.js";
import { Files } from "./files.js";
import { RunHead } from "./head.js";
import { Overview } from "./overview.js";
import { Samples } from "./samples.js";
import { StepDrawer } from "../step/drawer.js";
import { escapeInvisible } from "../parts/invisible.js";

const FLAGS = 1000; // alerts and events that are flagged at most
const NONE = [],
  NAMESAKES = 20; // runs of one name that are offered

export default function RunView({ parts }) {
  const id = parts[0];
  if (!id) return html`<${Empty} title="No run selected"><a href=${href("runs")}>All runs</a><//>`;
  if (id === "latest") return html`<${Latest} />`;
  return html`<${OneRun} key=${id} id=${id} />`;
}

// The address of whichever run is the newest, as in the terminal; a run that is called so is found by its id.
function Latest() {
  const { query } = useRoute();
  const newest = useFetch((signal) => get("runs", { limit: 1 }, signal).then(({ runs }) => runs[0]?.id ?? null), []);
  useEffect(() => {
    if (newest.value) go(href("run", newest.value, query), { replace: true });
  }, [newest.value]);
  return html`<${Fetched} fetched=${newest} what="Looking for the newest run">${(found) =>
    found === null && html`<${Empty} title="No runs yet"><a href=${href("runs")}>How to record one</a><//>`}<//>`;
}

// What an address names where there is no run with this id: the run of this name, as in the terminal, or a choice of them.
function ByName({ name }) {
  const { query } = useRoute();
  const named = useFetch(
    (signal) => get("runs", { filter: `name = ${quoted(name)}`, archived: "show", limit: NAMESAKES }, signal),
    [name],
  );
  const only = named.value?.matched === 1 ? named.value.runs[0].id : null;
  useEffect(() => {
    if (only) go(href("run", only, query), { replace: true });
  }, [only]);
  return html`<${Fetched} fetched=${named} what=${`Looking for ${name}`}>${({ matched, runs }) =>
    matched === 0
      ? html`<${Empty} title=${`There is no run ${name}`}>
          It may have been deleted, or belong to another hub. <a href=${href("runs")}>All runs</a><//>`
      : matched > 1 &&
        html`<${Empty} title=${`${counted(matched)} are called ${name}`}>
          <ul class="namesakes" aria-label="Runs of this name">${runs.map(
            (run) => html`<li key=${run.id}><a href=${href("run", run.id, query)}>${run.project} / ${run.id}</a>${" "}
              <span class="muted">${run.status}, started ${clock(run.started)}</span></li>`,
          )}</ul>
          ${matched > runs.length && html`<p>The newest ${count(runs.length)} are shown.</p>`}
          <a href=${href("runs", { filter: `name = ${quoted(name)}` })}>Show them in the table</a><//>`}<//>`;
}

function OneRun({ id }) {
  const run = useFetch((signal) => get(runPath(id), {}, signal), [id]);
  const keys = useFetch((signal) => get(runPath(id, "keys"), {}, signal).then((answer) => answer.keys), [id]);
  const [tab, setTab] = useTab(run.value);
  const feeds = useRef(new Set());
  const notes = useFetch((signal) => drawn(feeds.current, signal).then(() => readNotes(id, signal)), [id]);
  const findings = useFetch(
    (signal) =>
      (tab === "charts" ? drawn(feeds.current, signal) : Promise.resolve()).then(() =>
        get(runPath(id, "findings"), {}, signal),
      ),
    [id, run.value?.status],
  );
  usePollUntilComplete(findings);
  const goodput = useFetch(
    (signal) => readGoodput(run.value, tab === "charts" ? feeds.current : null, signal),
    [id, run.value?.attempts, run.value?.status],
  );
  const control = useControl(run.value);
  const [step, at, attempt] = [useIntegerParam("step"), useIntegerParam("at"), useIntegerParam("attempt")];
  const watching = useWatching(id, { run, keys, notes, findings, feeds });
  const open = useMemo(
    () => (number, rank, attempt) =>
      change({ step: number, at: rank ?? null, attempt: attempt ?? null }, { replace: step !== null }),
    [step],
  );
  const close = useMemo(() => () => change({ step: null, at: null, attempt: null }), []);
  const going = run.value && ["running", "stalled", "importing"].includes(run.value.status);
  usePolling(going, run.value?.status === "importing" ? 2000 : 10000, [run, goodput, findings]);
  const onEdited = useMemo(() => (now) => run.set((old) => old && { ...old, ...now, values: old.values }), []);
  useEffect(() => {
    if (run.value) document.title = `${escapeInvisible(run.value.name || id)} · Stepscope`;
  }, [run.value?.name]);
  if (run.error?.status === 404 && !run.value) return html`<div class="page run"><${ByName} name=${id} /></div>`;
  return html`<div class=${"page run" + (step !== null ? " with-drawer" : "")}>
    <${Fetched} fetched=${run} what="Loading the run">${(found) => html`
      <${RunHead} run=${found} control=${control} goodput=${goodput.value} findings=${findings.value} reload=${findings.reload}
          tab=${tab} setTab=${setTab}
          onStep=${open} live=${watching} onEdit=${(wanted, words) => edit(found, wanted, words, onEdited)} />
      ${
        tab === "diagnosis"
          ? html`<${Diagnosis} run=${found} keys=${keys.value || NONE} answer=${findings.value} reload=${findings.reload}
              onStep=${open} />`
          : tab === "overview"
            ? html`<${Overview} run=${found} keys=${keys.value || NONE} going=${going} control=${control} goodput=${goodput} />`
            : tab === "files"
              ? html`<${Files} id=${id} going=${going} />`
              : tab === "samples"
                ? html`<${Samples} id=${id} going=${going} />`
                : html`<${Fetched} fetched=${keys} what="Loading metrics">${(list) => html`
            <${Charts} id=${id} run=${found} keys=${list} notes=${notes.value?.records || NONE}
                findings=${findings.value?.findings || NONE}
                left=${notes.value?.left} feeds=${feeds.current} onStep=${open} step=${step} />`}
            <//>`
      }
    `}<//>
    ${
      step !== null &&
      html`<${StepDrawer} run=${id} step=${step} at=${at} attempt=${attempt} onStep=${open} onClose=${close} />`
    }
  </div>`;
}

// The tab of the address. One that has nothing else either opens the diagnosis of a run in which something went wrong, else its
// charts; that is decided once, when the run is first read, so that nothing moves under the reader.
function useTab(run) {
  const { query } = useRoute();
  const waiting = useRef(query.toString() === "");
  const first = run && waiting.current && isWrong(run) ? "diagnosis" : "";
  useEffect(() => {
    if (first) change({ tab: first });
    if (run) waiting.current = false;
  }, [!run]);
  const given = query.get("tab") || first;
  return [TABS.includes(given) ? given : "charts", setTab];
}

const TABS = ["diagnosis", "overview", "files", "samples"];
const setTab = (name) => change({ tab: name });
const isWrong = (run) => run.findings > 0 && run.worst_finding !== "INFO";

// A run that dies sends no event, and only the hub diagnoses values: so both are polled. A new request cancels one that
// is still pending, so a slow one is waited for.
function usePolling(going, ms, fetched) {
  const latest = useRef(fetched);
  latest.current = fetched;
  useEffect(() => {
    const ask = () => {
      if (!document.hidden) latest.current.filter((each) => !each.loading).forEach((each) => each.reload());
    };
    const timer = going ? setInterval(ask, ms) : 0;
    return () => clearInterval(timer);
  }, [going, ms]);
}

// A whole number of the address; null where there is none, or something else.
function useIntegerParam(key) {
  const [text] = useParam(key);
  return /^-?\d{1,15}$/.test(text) ? Number(text) : null;
}

// The charts come first; flags, and what looks through the whole run, wait until the first of them has its line.
async function drawn(feeds, signal) {
  for (let turn = 0; turn < 30; turn++) {
    if ([...feeds].some((feed) => [...feed.entries.values()].some((entry) => entry.lines.length))) return;
    await new Promise((done) => setTimeout(done, 100));
    signal.throwIfAborted();
  }
}

async function readGoodput(run, feeds, signal) {
  if (!run) return undefined;
  if (feeds) await drawn(feeds, signal);
  return get(runPath(run.id, "goodput"), {}, signal);
}

// The newest alerts and events; `left` tells that there are older ones.
async function readNotes(id, signal) {
  const [alerts, events] = await Promise.all([
    get("alerts", { run: id, sort: "newest", limit: FLAGS / 2 }, signal),
    get("logs", { run: id, kind: "event", sort: "newest", limit: FLAGS / 2 }, signal),
  ]);
  return newest([...alerts.alerts, ...events.logs].filter(isUserRecord), alerts.next !== null || events.next !== null);
}

const isUserRecord = (note) => !/^(stepscope\.|train\.run\.|train\.live$)/.test(note.name || "");

function newest(records, left) {
  return { records: records.sort((a, b) => a.time - b.time).slice(-FLAGS), left: left || records.length > FLAGS };
}

// Keep everything up to date from one stream; only what the stream does not carry is requested again.
function useWatching(id, { run, keys, notes, findings, feeds }) {
  const later = useRef({});
  const soon = (name, act, ms = 800) => {
    later.current[name] ??= setTimeout(() => {
      later.current[name] = undefined;
      act();
    }, ms);
  };
  const progress = useRef({ step: null, time: null });
  const [, redraw] = useState(0);
  useEffect(() => () => Object.values(later.current).forEach(clearTimeout), []);
  const begun = useRef(false);
  const latest = useRef(findings);
  latest.current = findings;
  const judge = () => {
    if (latest.current.loading) soon("findings", judge, 1200);
    else findings.reload();
  };
  return useLive(
    { run: id, kind: ["metric", "event", "alert"] },
    {
      hello: () => {
        if (!begun.current) for (const feed of feeds.current) feed.begin();
        begun.current = true;
      },
      records: (data) => {
        let unknown = false;
        for (const feed of feeds.current) feed.take(data);
        for (const [key, { step, time }] of Object.entries(data.points || {})) {
          if (keys.value && !keys.value.some((each) => each.key === key)) unknown = true;
          note(progress.current, step, time);
        }
        if (unknown) soon("keys", keys.reload);
        const news = [...(data.alerts || []), ...(data.events || [])];
        if (news.length)
          soon(
            "run",
            () => {
              run.reload();
              judge();
            },
            1200,
          );
        const shown = news.filter(isUserRecord);
        if (shown.length) notes.set((old) => newest([...(old?.records || []), ...shown], old?.left));
        soon(
          "facts",
          () => {
            const { step, time } = progress.current;
            run.set(
              (old) =>
                old && {
                  ...old,
                  step: Math.max(old.step ?? 0, step ?? 0),
                  seen: Math.max(old.seen || 0, time || 0),
                  duration: old.started && time ? Math.max(old.duration || 0, time - old.started) : old.duration,
                },
            );
            redraw((n) => n + 1);
          },
          500,
        );
      },
      gap: () => {
        for (const feed of feeds.current) feed.refresh();
        run.reload();
        keys.reload();
        notes.reload();
        judge();
      },
    },
    [id],
  );
}

function note(progress, steps, times) {
  for (const step of steps) if (step !== null && !(progress.step >= step)) progress.step = step;
  for (const time of times) if (!(progress.time >= time)) progress.time = time;
}
