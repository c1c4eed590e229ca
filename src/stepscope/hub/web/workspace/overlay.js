// The charts of a workspace: one for each metric, a line for each visible run or for each group of them.
import { html, useEffect, useMemo, useRef } from "../h.js";
import { change, go, href, useParam, useParams } from "../router.js";
import { useDebounced } from "../use.js";
import { seriesColour, seriesDash } from "../theme.js";
import { Search, Select, Switch, Toolbar } from "../parts/controls.js";
import { count } from "../parts/format.js";
import { movableAmong } from "../parts/reorder.js";
import { Empty, Failure, Loading } from "../parts/states.js";
import { ChartCard } from "../charts/card.js";
import { pick } from "../charts/pick.js";
import { ChartSections } from "../charts/grid.js";
import { axesOf, axisOf, axisText, ends, grouped, Smoothing } from "../run/charts.js";
import { expressionKey, Expressions, titleOf } from "./expressions.js";
import { groupLines } from "./groups.js";
import { RunLines } from "./lines.js";
import { useList } from "./state.js";

const POINTS = [
  [10, 512],
  [60, 256],
  [Infinity, 128],
]; // marks of a line, by the number of runs

export function Overlay({ project, runs, fields, styles, groups, theme, toggle }) {
  const [xText] = useParam("x", "step");
  const { x, xKey } = axisOf(xText);
  const [smooth] = useParam("smooth", "0");
  const [log] = useParam("log");
  const [values] = useParam("values");
  const [q] = useParam("q");
  const [from] = useParam("from");
  const [to] = useParam("to");
  const [settings, setSettings] = useChartSettings();
  const scope = project ?? "compare";
  const [pins, setPins] = useList("pin", scope);
  const [wide, setWide] = useList("wide", scope);
  const [closed, setClosed] = useList("fold", scope);
  const [expressions, setExpressions] = useList("expr", scope);
  const search = useDebounced(q, 150);
  const feed = useMemo(() => new RunLines(), []);
  const known = useRef(new Map());
  const window = from || to ? [from === "" ? null : Number(from), to === "" ? null : Number(to)] : null;
  useEffect(() => () => feed.close(), []);
  useEffect(() => {
    feed.show(runs, styles);
  }, [runs.map((run) => `${run.id} ${run.name}`).join("\n"), styles, theme, groups]);
  useEffect(() => {
    const [, points] = POINTS.find(([most]) => runs.length <= most) ?? [0, 128];
    feed.change({ x, along: xKey, from: window?.[0] ?? null, to: window?.[1] ?? null, points });
  }, [xText, from, to, runs.length > 10, runs.length > 60]);
  useEffect(() => {
    const moved = runs.filter((run) => known.current.has(run.id) && known.current.get(run.id) !== run.seen);
    known.current = new Map(runs.map((run) => [run.id, run.seen]));
    if (moved.length) feed.move(moved.map((run) => run.id));
  }, [runs]);

  const keys = useMemo(() => metricsOf(fields.value?.metrics || []), [fields.value]);
  const shown = useMemo(() => found(keys, search), [keys, search]);
  const sections = useMemo(() => {
    const made = expressions.map((text) => ({ key: expressionKey(text), category: null }));
    if (search) return [["", [...found(made, search), ...shown]]];
    return [...(made.length ? [["Expressions", made]] : []), ...grouped(shown, pins)];
  }, [shown, pins, search, expressions]);
  const look = useMemo(
    () => ({ kind: x, window, log: log === "1", weight: Number(smooth) || 0, flags: [], values: values === "1" }),
    [x, from, to, log, smooth, values],
  );
  const overTime = useMemo(() => ({ ...look, kind: "relative", window: null }), [look]);
  const sources = useRef(new Map());
  const latest = useRef(groups);
  latest.current = groups;
  const source = (key) => {
    if (!sources.current.has(key)) sources.current.set(key, sourceOf(feed, key, latest));
    return sources.current.get(key);
  };
  const on = {
    zoom: (low, high) => change(ends(low, high, x), { replace: false }),
    reset: () => change({ from: null, to: null }, { replace: false }),
    legend: (id) => toggle(id.startsWith("group ") ? membersOf(groups, id, runs) : [id], false),
  };
  const opening = (key) => (mark, plot) => {
    const { run } = mark.line,
      open = (step, rank) => go(href("run", run, { tab: "charts", step, at: rank }));
    if (!run) change({ filter: narrowed(groups.by, mark.line.name) }, { replace: false });
    else if (titleOf(key) === key) pick(run, mark.line.key || key, mark, plot, { x }, open);
    else if (x === "step" || x === "metric")
      open((mark.line.marks.steps?.[mark.i] ?? [mark.line.marks.x[mark.i]])[0], null);
  };
  const flip = (list, key) => (list.includes(key) ? list.filter((each) => each !== key) : [...list, key]);
  const pinned = (sections.find(([name]) => name === "pinned")?.[1] ?? []).map((each) => each.key);
  const movable = (key) =>
    search
      ? {}
      : key === titleOf(key)
        ? movableAmong(key, key, pinned, pins, setPins)
        : movableAmong(titleOf(key), titleOf(key), expressions, expressions, setExpressions);
  const card = ({ key }) => {
    const timed = key.startsWith("system/") && (x === "step" || x === "metric");
    return html`<${ChartCard} key=${key} title=${titleOf(key)} source=${source(key)} look=${timed ? overTime : look}
      linked metric=${key === titleOf(key) ? key : undefined} ...${movable(key)}
      on=${timed ? { legend: on.legend } : { ...on, pick: opening(key) }} group=${`workspace-${timed ? "relative" : xText}`}
      pinned=${pins.includes(key)} onPin=${key === titleOf(key) ? () => setPins(flip(pins, key)) : undefined}
      wide=${wide.includes(key)} onWide=${() => setWide(flip(wide, key))}
      settings=${settings.get(key)} onSettings=${(next) => setSettings(key, next)}
      empty=${emptyWords(runs.length, timed ? null : xKey)} />`;
  };
  return html`<div class="controls"><${Toolbar} label="Charts">
      <${Search} label="Find a metric" placeholder="Find a metric  /" value=${q}
          onChange=${(text) => change({ q: text })} />
      <${Select} label="x" hidden=${false} value=${axisText(xKey) ?? x}
          onChange=${(next) => change({ x: next === "step" ? null : next, from: null, to: null })}
          options=${axesOf(
            keys.filter(({ key }) => !key.startsWith("system/")),
            xKey,
          )} />
      <${Smoothing} value=${Number(smooth) || 0} />
      <${Switch} label="log" title="A logarithmic y axis" on=${log === "1"} onChange=${(next) => change({ log: next })} />
      <${Switch} label="values" title="The last, lowest and highest value of each line below its chart" on=${values === "1"}
          onChange=${(next) => change({ values: next })} />
      <${Expressions} list=${expressions} runs=${runs} onChange=${setExpressions} />
    <//>
      <span class="controls-note muted">
        ${
          window &&
          html`<button type="button" class="button"
              onClick=${() => change({ from: null, to: null })}>Whole range ✕</button>`
        }
        ${q && html`<span>${count(shown.length)} of ${count(keys.length)}</span>`}
      </span>
    </div>
    ${
      !fields.value
        ? fields.error
          ? html`<${Failure} error=${fields.error} reload=${fields.reload} />`
          : html`<${Loading} what="Loading metrics" />`
        : !keys.length
          ? html`<${Empty} title="No metrics yet">They appear here as soon as a run logs one.<//>`
          : !sections.some(([, list]) => list.length) &&
            html`<${Empty} title="No metric matches">No metric name matches “${search}”.<//>`
    }
    <${ChartSections} sections=${sections} isOpen=${(name) => !name || !closed.includes(name)}
      onToggle=${(name) => setClosed(flip(closed, name))} card=${card} wide=${wide} />`;
}

const emptyWords = (runs, xKey) =>
  !runs
    ? "No run is visible"
    : xKey === null
      ? "No visible run has this metric here"
      : `No visible run has both this and ${xKey} here`;

// The metrics by the names under which runs are compared, each once.
function metricsOf(metrics) {
  const names = [...new Set(metrics.map(({ compared }) => compared))];
  return names.map((key) => ({ key, category: key.includes("/") ? key.slice(0, key.indexOf("/")) : null }));
}

// Words that all are part of the name, or a regular expression.
export function found(keys, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const pattern = /[\^$*+?()[\]{}|\\]/.test(text) ? expression(text.trim()) : null;
  return keys.filter(({ key }) =>
    pattern ? pattern.test(key) : words.every((word) => key.toLowerCase().includes(word)),
  );
}

function expression(text) {
  try {
    return new RegExp(text, "i");
  } catch {
    return null; // not complete yet: its words are searched
  }
}

// What narrows the list to one group, in the filter language.
function narrowed(by, name) {
  const field = by.replace(/^(tag|config)\.(.*)$/, (whole, kind, rest) =>
    /^[\w./-]+$/.test(rest) ? whole : `${kind}.${JSON.stringify(rest)}`,
  );
  return name === "–" ? `${field} = none` : `${field} = ${JSON.stringify(name)}`;
}

const membersOf = (groups, id, runs) =>
  runs.filter((run) => "group " + groups.of.get(run.id) === id).map((run) => run.id);

// The lines of one metric as a card takes them: those of the runs, or one for each group with its spread.
function sourceOf(feed, key, latest) {
  let made = { stamp: "", lines: /** @type {any[]} */ ([]) };
  return {
    watch: (notify) => feed.watch(key, notify),
    read: () => {
      const lines = feed.lines(key),
        groups = latest.current,
        state = { ...feed.state(key), unit: lines[0]?.unit || "" };
      if (!groups) return { ...state, lines };
      const stamp = `${feed.version} ${groups.by} ${lines.map(({ marks }) => `${marks.length} ${marks.total}`).join()}`;
      if (stamp !== made.stamp) made = { stamp, lines: linesOfGroups(lines, groups) };
      return { ...state, lines: made.lines };
    },
  };
}

function linesOfGroups(lines, groups) {
  return groupLines(lines, (run) => groups.of.get(run)).map(({ name, members, marks }) => {
    const at = groups.styles.get(name) ?? 0;
    return {
      ...{ id: "group " + name, name, short: `${name} (${members.length})`, at, marks, rank: null, ghost: false },
      ...{ colour: seriesColour(at), dash: seriesDash(at), last: null, group: true },
    };
  });
}

/**
 * The settings of single charts, in the address: `chart=KEY~log~values~smooth:0.6~y:robust` or `y:0..3`.
 * @returns {[Map<string, any>, (key: string, next: any) => void]}
 */
function useChartSettings() {
  const [texts, setTexts] = useParams("chart");
  const settings = useMemo(() => new Map(texts.map(readSettings)), [texts]);
  const set = (key, next) => {
    const made = new Map(settings);
    if (Object.keys(next).length) made.set(key, next);
    else made.delete(key);
    setTexts([...made].map(([name, each]) => writeSettings(name, each)));
  };
  return [settings, set];
}

/** @returns {[string, any]} */
export function readSettings(text) {
  const [key, ...parts] = text.split("~"),
    made = /** @type {any} */ ({});
  for (const part of parts) {
    const [name, value = ""] = part.split(/:(.*)/s);
    if (name === "log") made.log = value !== "0";
    else if (name === "values") made.values = value !== "0";
    else if (name === "smooth") made.weight = Math.min(0.99, Number(value) || 0);
    else if (name === "y" && value === "robust") made.y = "robust";
    else if (name === "y" && value.includes(".."))
      made.y = value.split("..").map((end) => (end === "" || Number.isNaN(Number(end)) ? null : Number(end)));
  }
  return [decodeURIComponent(key), made];
}

export function writeSettings(key, { log, values, weight, y }) {
  const parts = [encodeURIComponent(key)];
  if (log !== undefined) parts.push(log ? "log" : "log:0");
  if (values !== undefined) parts.push(values ? "values" : "values:0");
  if (weight !== undefined) parts.push(`smooth:${weight}`);
  if (y === "robust") parts.push("y:robust");
  else if (Array.isArray(y)) parts.push(`y:${y.map((end) => end ?? "").join("..")}`);
  return parts.join("~");
}
