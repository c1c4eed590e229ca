// Logs: a live tail that can be held, searched by text, severity and attributes, with ways to the step and the span.
import { html, useCallback, useEffect, useRef, useState } from "../h.js";
import { useParam, useParams } from "../router.js";
import { useLive } from "../use.js";
import { Drawer } from "../parts/drawer.js";
import { Empty, Failure, Loading } from "../parts/states.js";
import { Search, Select, Switch } from "../parts/toolbar.js";
import { clock, count } from "../parts/format.js";
import { Attributes, Field, RunField, useRuns } from "../search/fields.js";
import { edge, fits, joined, MOST, page, since } from "../log/lines.js";
import { LineDetails, LogList } from "../log/list.js";

const LEVELS = [["", "all severities"], ["DEBUG", "debug and up"], ["INFO", "info and up"], ["WARN", "warnings and up"], ["ERROR", "errors"]];
const KINDS = [["", "logs and events"], ["log", "logs"], ["event", "events"]];

export default function Logs() {
  const [run, setRun] = useParam("run"), [q, setQ] = useParam("q"), [severity, setSeverity] = useParam("severity");
  const [kind, setKind] = useParam("kind"), [step, setStep] = useParam("step"), [rank] = useParam("rank");
  const [trace] = useParam("trace"), [span] = useParam("span"), [attrs, setAttrs] = useParams("attr");
  const wanted = { run, q, severity, kind, step, rank, trace, span, attrs };
  const key = JSON.stringify(wanted);
  const runs = useRuns();
  const [live, setLive] = useState(true);
  const [chosen, setChosen] = useState(null);
  const log = useLog(wanted, key, live);
  const [following, setFollowing] = useState(true);
  useEffect(() => { setFollowing(true); setChosen(null); }, [key]);
  const close = useCallback(() => setChosen(null), []);
  const searched = q || severity || kind || step || attrs.length;
  return html`<div class="page fill logs">
    <div class="page-head"><h1>Logs</h1><span class="grow"></span>
      <span class=${"log-state " + (live ? log.stream : "held")} role="status">${live ? (log.stream === "open" ? "live" : log.stream === "lost" ? "connection lost, coming back" : "connecting") : "held"}</span>
      <${Switch} label=${live ? "Pause" : "Resume"} on=${!live} onChange=${(held) => setLive(!held)} title="Hold the tail; what comes meanwhile is shown on resuming" />
    </div>
    <div class="toolbar search-bar" role="group" aria-label="Search">
      <${Search} label="Text" placeholder="Search the text" value=${q} onChange=${(next) => setQ(next)} />
      <${Select} label="Severity" value=${severity} options=${LEVELS} onChange=${setSeverity} />
      <${Select} label="Kind" value=${kind} options=${KINDS} onChange=${setKind} />
      <${RunField} value=${run} onChange=${setRun} runs=${runs.value} />
      <${Field} label="Step" value=${step} onChange=${setStep} placeholder="any" width="6em" type="number" />
      <${Attributes} values=${attrs} onChange=${setAttrs} />
    </div>
    ${log.error && !log.lines.length ? html`<div class="panel log-none"><${Failure} error=${log.error} again=${log.again} /></div>`
      : log.loading && !log.lines.length ? html`<div class="panel log-none"><${Loading} what="Reading the log" /></div>`
        : !log.lines.length ? html`<div class="panel log-none"><${Empty} title=${searched ? "No line is like that" : "Nothing was logged yet"}>${searched
            ? "Lines that come and fit will appear here." : html`Python's <code>logging</code> is recorded in every run, and <code>run.event("name")</code> adds events. They will appear here as they come.`}<//></div>`
          : html`<${LogList} lines=${log.lines} following=${following} onFollow=${setFollowing} chosen=${chosen} onChoose=${setChosen}
              onOlder=${log.older} more=${log.more} showRun=${!run} />`}
    <p class="table-foot">${count(log.lines.length)} lines${log.more ? ", scroll up for older ones" : ""}${log.lines.length >= MOST ? ` (the newest ${count(MOST)})` : ""}${log.gap ? " · some lines were left out: this browser was too slow" : ""}</p>
    ${chosen && html`<${Drawer} title=${clock(chosen.time, { exact: true })} label="The chosen line" onClose=${close}><${LineDetails} line=${chosen} /><//>`}
  </div>`;
}

// The lines that are wanted. Without a run the stream only tells which runs moved, so the new lines are asked for.
function useLog(wanted, key, live) {
  const empty = { lines: [], more: false, loading: true, error: null, gap: false };
  const [state, setState] = useState(empty);
  const [turn, setTurn] = useState(0);
  const held = useRef([]), asking = useRef(false), latest = useRef(null), now = useRef({});
  latest.current = wanted;
  now.current = { live, state };
  useEffect(() => {
    const control = new AbortController();
    let gone = false;
    held.current = [];
    setState((old) => ({ ...empty, lines: old.key === key ? old.lines : [] }));
    page(wanted, null, control.signal).then(
      (found) => { if (!gone) setState({ ...empty, ...found, key, loading: false }); },
      (error) => { if (!gone && error.name !== "AbortError") setState({ ...empty, loading: false, error }); });
    return () => { gone = true; control.abort(); };
  }, [key, turn]);

  const add = (lines) => {
    const fresh = lines.filter((line) => fits(line, latest.current));
    if (!fresh.length) return;
    if (!now.current.live) { held.current.push(...fresh.slice(-MOST)); return; }
    setState((old) => ({ ...old, lines: joined(old.lines, fresh) }));
  };
  useEffect(() => { if (live && held.current.length) add(held.current.splice(0)); }, [live]);

  const catchUp = async () => {
    if (asking.current) return;
    asking.current = true;
    try {
      await new Promise((done) => setTimeout(done, 250));
      const last = now.current.state.lines.at(-1);
      add(await since(latest.current, last ? last.time : Date.now() / 1000 - 60));
    } catch { /* the next movement asks again */ } finally { asking.current = false; }
  };
  const stream = useLive(wanted.run ? { run: wanted.run, kind: ["log", "event"] } : {}, {
    records: (data) => add([...(data.logs || []), ...(data.events || [])]),
    runs: catchUp,
    gap: () => setState((old) => ({ ...old, gap: true })),
  }, [wanted.run]);

  const older = async () => {
    if (asking.current || !now.current.state.lines.length) return;
    asking.current = true;
    const mine = key;
    try {
      const found = await page(latest.current, edge(now.current.state.lines));
      setState((old) => old.key !== mine ? old : { ...old, lines: [...found.lines, ...old.lines], more: found.more });
    } catch (error) { setState((old) => ({ ...old, error })); } finally { asking.current = false; }
  };
  return { ...state, stream, older, again: () => setTurn((n) => n + 1) };
}
