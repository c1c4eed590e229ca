// Logs: a live tail that can be paused and searched by text, severity and attributes, with links to step and span.
import { html, useCallback, useEffect, useRef, useState } from "../h.js";
import { useParam, useParams } from "../router.js";
import { useLive, useRetry } from "../use.js";
import { Search, Select, Switch } from "../parts/controls.js";
import { Attributes, Field, RunField, useRuns } from "../parts/fields.js";
import { clock, count } from "../parts/format.js";
import { Drawer } from "../parts/overlays.js";
import { Empty, Failure, Loading } from "../parts/states.js";
import { edge, fits, joined, MOST, page, since } from "./lines.js";
import { LineDetails, LogList } from "./list.js";
import { RunBanner } from "../run/head.js";

const LEVELS = [
  ["", "all severities"],
  ["DEBUG", "debug and up"],
  ["INFO", "info and up"],
  ["WARN", "warnings and up"],
  ["ERROR", "errors"],
];
const LATE = 2,
  LATER = 30; // seconds by which lines may come after others of their time: usually, and after a gap
const PATIENCE = 250; // milliseconds in which requests are joined
const KINDS = [
  ["", "logs and events"],
  ["log", "logs"],
  ["event", "events"],
  ["alert", "alerts"],
];

export default function Logs() {
  const [run, setRun] = useParam("run"),
    [q, setQ] = useParam("q"),
    [severity, setSeverity] = useParam("severity");
  const [kind, setKind] = useParam("kind"),
    [step, setStep] = useParam("step"),
    [rank] = useParam("rank");
  const [trace] = useParam("trace"),
    [span] = useParam("span"),
    [attrs, setAttrs] = useParams("attr");
  const wanted = { run, q, severity, kind, step, rank, trace, span, attrs };
  const key = JSON.stringify(wanted);
  const runs = useRuns();
  const [live, setLive] = useState(true);
  const [chosen, setChosen] = useState(/** @type {{ time: number, [field: string]: any } | null} */ (null));
  const log = useLog(wanted, key, live);
  const [following, setFollowing] = useState(true);
  useEffect(() => {
    setFollowing(true);
    setChosen(null);
  }, [key]);
  const close = useCallback(() => setChosen(null), []);
  const searched = q || severity || kind || step || attrs.length;
  return html`<div class="page fill logs">
    <${RunBanner} id=${run} tab="logs" title="Logs">
      <span class=${"log-state " + (live ? log.stream : "paused")}
          role="status">
            ${
              live
                ? log.stream === "open"
                  ? "live"
                  : log.stream === "lost"
                    ? "connection lost, reconnecting"
                    : "connecting"
                : "paused"
            }
          </span>
      <${Switch} label=${live ? "Pause" : "Resume"} on=${!live} onChange=${(held) => setLive(!held)}
          title="Stop scrolling; new lines are shown on resume" />
    <//>
    <div class="toolbar search-bar" role="group" aria-label="Search">
      <${Search} label="Text" placeholder="Search the text" value=${q} onChange=${(next) => setQ(next)} />
      <${Select} label="Severity" value=${severity} options=${LEVELS} onChange=${setSeverity} />
      <${Select} label="Kind" value=${kind} options=${KINDS} onChange=${setKind} />
      <${RunField} value=${run} onChange=${setRun} runs=${runs.value} />
      <${Field} label="Step" value=${step} onChange=${setStep} placeholder="any" width="6em" type="number" />
      <${Attributes} values=${attrs} onChange=${setAttrs} />
    </div>
    ${
      log.error && !log.lines.length
        ? html`<div class="panel log-none"><${Failure} error=${log.error} reload=${log.reload} /></div>`
        : log.loading && !log.lines.length
          ? html`<div class="panel log-none"><${Loading} what="Loading logs" /></div>`
          : !log.lines.length
            ? html`<div class="panel log-none">
              <${Empty} title=${searched ? "No lines match" : "No logs yet"}>${
                searched
                  ? "Matching lines appear here as they are recorded."
                  : html`Python's <code>logging</code> and <code>run.event("name")</code> appear here as they are recorded.`
              }<//></div>`
            : html`<${LogList} lines=${log.lines} following=${following} onFollow=${setFollowing} chosen=${chosen}
                onChoose=${setChosen}
              onOlder=${log.older} more=${log.more} showRun=${!run} />`
    }
    <p class="table-foot">${count(log.lines.length)} lines${log.more ? ", scroll up for older ones" : ""}
      ${log.lines.length >= MOST ? ` (the newest ${count(MOST)})` : ""}
      ${log.missing ? " · lines are missing, loading them again" : ""}</p>
    ${
      chosen &&
      html`<${Drawer} title=${clock(chosen.time, { exact: true })} label="Selected line"
          onClose=${close}><${LineDetails} line=${chosen} /><//>`
    }
  </div>`;
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** @typedef {{ key: any, lines: any[], more: boolean, loading: boolean, error: any, missing: boolean }} Log */

// The matching lines. Without a run the stream only names the runs that changed, so new lines are requested; so are
// those that the stream left out, as when the hub was down: `missing` until they arrive.
function useLog(wanted, key, live) {
  /** @type {Log} */
  const empty = { key: null, lines: [], more: false, loading: true, error: null, missing: false };
  const [state, setState] = useState(empty);
  const [turn, setTurn] = useState(0);
  const held = useRef(/** @type {any[]} */ ([])),
    asking = useRef(false),
    latest = useRef(null),
    now = useRef({ live, state, key });
  const due = useRef(/** @type {number | null} */ (null)),
    busy = useRef(false),
    gone = useRef(false); // due: the moment since when lines may be missing
  latest.current = wanted;
  now.current = { live, state, key };
  const reload = useCallback(() => setTurn((n) => n + 1), []);
  useRetry(state.lines.length ? null : state.error, reload);
  useEffect(() => {
    const control = new AbortController();
    let gone = false;
    held.current = [];
    due.current = null;
    setState((old) => ({ ...empty, lines: old.key === key ? old.lines : [] }));
    page(wanted, null, control.signal).then(
      (found) => {
        if (!gone) setState({ ...empty, ...found, key, loading: false });
      },
      (error) => {
        if (!gone && error.name !== "AbortError") setState({ ...empty, loading: false, error });
      },
    );
    return () => {
      gone = true;
      control.abort();
    };
  }, [key, turn]);

  const add = (lines) => {
    const fresh = lines.filter((line) => fits(line, latest.current));
    if (!fresh.length) return;
    if (!now.current.live) {
      held.current.push(...fresh.slice(-MOST));
      return;
    }
    setState((old) => ({ ...old, lines: joined(old.lines, fresh) }));
  };

  const lack = (late) => {
    const last = now.current.state.lines.at(-1)?.time;
    due.current = last === undefined ? -Infinity : Math.min(due.current ?? Infinity, last - late);
  };
  const catchUp = async () => {
    if (busy.current || !now.current.live || due.current === null) return;
    busy.current = true;
    await pause(PATIENCE);
    const mine = now.current.key,
      last = now.current.state.lines.at(-1)?.time;
    const moment = due.current === -Infinity && last !== undefined ? last - LATE : due.current;
    if (moment !== null && now.current.live && !now.current.state.loading) {
      due.current = null;
      const later = () => {
        due.current = Math.min(moment, due.current ?? Infinity);
      };
      await since(latest.current, Number.isFinite(moment) ? moment : null).then(
        ({ whole, lines, more }) => {
          if (!now.current.live) return later();
          setState((old) =>
            old.key !== mine
              ? old
              : { ...old, missing: false, ...(whole ? { lines: joined(old.lines, lines) } : { lines, more }) },
          );
        },
        () => {
          later();
          return pause(8 * PATIENCE);
        },
      );
    }
    busy.current = false;
    if (!gone.current) catchUp();
  };
  useEffect(
    () => () => {
      gone.current = true;
    },
    [],
  );
  useEffect(() => {
    if (!live) return;
    if (held.current.length) add(held.current.splice(0));
    catchUp();
  }, [live]);
  const stream = useLive(
    wanted.run ? { run: wanted.run, kind: ["log", "event", "alert"] } : {},
    {
      hello: () => {
        lack(LATE);
        catchUp();
      },
      records: (data) => add([...(data.logs || []), ...(data.events || []), ...(data.alerts || [])]),
      runs: () => {
        lack(LATE);
        catchUp();
      },
      gap: () => {
        lack(LATER);
        setState((old) => ({ ...old, missing: true }));
        catchUp();
      },
    },
    [wanted.run],
  );

  const older = async () => {
    if (asking.current || !now.current.state.lines.length) return;
    asking.current = true;
    const mine = key;
    try {
      const found = await page(latest.current, edge(now.current.state.lines));
      setState((old) => (old.key !== mine ? old : { ...old, lines: [...found.lines, ...old.lines], more: found.more }));
    } catch (error) {
      setState((old) => ({ ...old, error }));
    } finally {
      asking.current = false;
    }
  };
  return { ...state, stream, older, reload };
}
