// One trace, or a step on all ranks: overview, waterfall or flame, and the chosen span beside it.
import { html, useCallback, useEffect, useMemo, useRef, useState } from "../h.js";
import { get } from "../api.js";
import { change, href, route, useParam } from "../router.js";
import { useFetch, useKey } from "../use.js";
import { Choice, IconButton, Switch } from "../parts/controls.js";
import { clock, count, millis } from "../parts/format.js";
import { RunName } from "../parts/run_names.js";
import { Failure, Loading } from "../parts/states.js";
import { Details, Export } from "./details.js";
import { Flame } from "./flame.js";
import { around, build, whole } from "./model.js";
import { NameTable, Overview } from "./overview.js";
import { SpanSearch } from "./search.js";
import { Waterfall } from "./waterfall.js";

const SMALL = 2000;

function Viewer({ picked, title, back }) {
  const fetched = useFetch(
    async (signal) => {
      const answer = await get("spans/lanes", picked, signal);
      return build(answer);
    },
    [JSON.stringify(picked)],
  );
  if (fetched.error) {
    return html`<div class="page"><${Head} title=${title} back=${back} />
      <div class="panel"><${Failure} error=${fetched.error} reload=${fetched.reload} /></div></div>`;
  }
  if (!fetched.value)
    return html`<div class="page"><${Head} title=${title} back=${back} /><${Loading} what="Loading the trace" /></div>`;
  return html`<${Shown} trace=${fetched.value} picked=${picked} title=${title} back=${back} />`;
}

function Head({ title, back, children }) {
  return html`<div class="page-head trace-head">
    <a class="icon-button" href=${back} aria-label="Back to the search"><span aria-hidden="true">←</span></a>
    <h1>${title}</h1>${children}</div>`;
}

function Shown({ trace, picked, title, back }) {
  const [kind, setKind] = useParam("view", trace.n > SMALL || trace.lanes.length > 1 ? "flame" : "waterfall");
  const [spanId, setSpanId] = useParam("span"),
    [critical, setCritical] = useParam("critical");
  const [view, setView] = useView(trace);
  const selected = trace.index.get(spanId) ?? -1;
  const select = useCallback((i) => setSpanId(i < 0 ? "" : trace.id[i]), [trace]);
  const next = useMemo(() => nextError(trace, selected), [trace, selected]);
  const toError = () => {
    if (next >= 0) {
      select(next);
      setView(around(trace, next));
    }
  };
  useKey("e", toError, [trace, selected]);
  useKey(
    "f",
    () => {
      if (selected >= 0) setView(around(trace, selected));
    },
    [trace, selected],
  );
  const shared = { trace, view, onView: setView, selected, onSelect: select, critical: critical === "1" };
  const root = trace.order[0];
  return html`<div class="page fill trace">
    <${Head} title=${title || trace.names[trace.name[root]]} back=${back}>
      <p class="trace-sum">
        <b>${millis(trace.total)}
        </b> · ${count(trace.n)} spans${trace.more ? " (truncated)" : ""} · ${trace.lanes.length} ${
          trace.lanes.length === 1 ? "lane" : "lanes"
        } ·${" "}
        <span class="muted">${clock(trace.begin)}</span></p>
      <span class="grow"></span>
      ${
        trace.errors.length > 0 &&
        html`<button type="button" class="button trace-bad" onClick=${toError}
            title="Go to the next failed span (e)">✕ ${count(trace.errors.length)} failed</button>`
      }
      <${Switch} label="Critical path" on=${critical === "1"} onChange=${(on) => setCritical(on ? "1" : "")}
          title="Fade spans that are not on the critical path" />
      <${Choice} label="View" value=${kind} options=${[
        ["waterfall", "Waterfall"],
        ["flame", "Flame"],
        ["names", "Names"],
      ]} onChange=${setKind} />
      <${IconButton} icon="wide" label="Show the whole trace" onClick=${() => setView(whole(trace))}
          disabled=${view.from === 0 && view.to === trace.total} />
      <${Export} picked=${picked} />
    <//>
    ${kind !== "names" && html`<${Overview} trace=${trace} view=${view} onView=${setView} />`}
    <div class=${"trace-main" + (selected >= 0 ? " with-details" : "")}>
      <div class="trace-stage panel">
        ${
          kind === "flame"
            ? html`<${Flame} ...${shared} />`
            : kind === "names"
              ? html`<${NameTable} trace=${trace} onSelect=${select} />`
              : html`<${Waterfall} ...${shared} />`
        }
      </div>
      ${
        selected >= 0 &&
        html`<${Details} trace=${trace} i=${selected} onClose=${() => select(-1)} onSelect=${select} />`
      }
    </div>
    <p
        class="table-foot trace-keys">Ctrl + wheel zooms · Shift + wheel moves ·${" "}
      <kbd>0</kbd> all · <kbd>f</kbd> fit the span · <kbd>e</kbd> next failed</p>
  </div>`;
}

/**
 * The visible range of time; once it stands still it is in the address.
 * @returns {[{ from: number, to: number }, (next: any) => void]}
 */
function useView(trace) {
  const read = () => {
    const query = route().query,
      from = Number(query.get("from")),
      to = Number(query.get("to"));
    return query.has("to") && to > from && from >= 0 && to <= trace.total * 1.0001
      ? { from, to: Math.min(to, trace.total) }
      : whole(trace);
  };
  const [view, setView] = useState(read);
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) setView(read());
    first.current = false;
  }, [trace]);
  useEffect(() => {
    const timer = setTimeout(() => {
      const all = view.from === 0 && view.to === trace.total;
      change({ from: all ? null : view.from.toPrecision(9), to: all ? null : view.to.toPrecision(9) });
    }, 400);
    return () => clearTimeout(timer);
  }, [view]);
  return [view, setView];
}

function nextError(trace, selected) {
  if (!trace.errors.length) return -1;
  const place = selected < 0 ? -1 : trace.place[selected];
  return trace.errors.find((i) => trace.place[i] > place) ?? trace.errors[0];
}

const backToSearch = (query) => {
  const kept = new URLSearchParams(query);
  for (const key of ["trace", "span", "view", "critical", "from", "to", "at"]) kept.delete(key);
  return href("traces", kept);
};

// Traces: spans found by anything they carry, and one trace, or one step on all ranks, drawn.
export default function Traces({ query }) {
  const trace = query.get("trace"),
    run = query.get("run"),
    at = query.get("at");
  if (trace) return html`<${Viewer} key=${trace} picked=${{ trace_id: trace }} back=${backToSearch(query)} />`;
  if (run && at) {
    return html`<${Viewer} key=${run + " " + at} picked=${{ run, step: at, last: query.get("last") }}
        title=${html`<${RunName} id=${run} />, step ${at}`} back=${backToSearch(query)} />`;
  }
  return html`<${SpanSearch} />`;
}
