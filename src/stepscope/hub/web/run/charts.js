// All charts of a run, by category, under one set of controls; only those near the screen are drawn.
import { html, useEffect, useMemo } from "../h.js";
import { change, href, useParam } from "../router.js";
import { useSavedChoice, useDebounced } from "../use.js";
import { useShownTheme } from "../theme.js";
import { Search, Select, Switch, Toolbar } from "../parts/controls.js";
import { count } from "../parts/format.js";
import { movableAmong } from "../parts/reorder.js";
import { Empty } from "../parts/states.js";
import { ChartCard } from "../charts/card.js";
import { DistributionCard } from "../charts/distribution.js";
import { findingsOf, flagsOf } from "../charts/draw.js";
import { Feed } from "../charts/feed.js";
import { ChartSections } from "../charts/grid.js";
import { pick } from "../charts/pick.js";
import { formatX } from "../charts/scales.js";
import { Expressions } from "../workspace/expressions.js";
import { useList } from "../workspace/state.js";
import { ExpressionCards } from "./expression_cards.js";

const POINTS = 800;
const FIRST = ["trainer", "actor", "evaluator"],
  LAST = ["other", "misc", "system", "stepscope"];

export function Charts({ id, run, keys, notes, findings, left, feeds, onStep, step }) {
  const view = useView();
  const search = useDebounced(view.q, 150);
  const [pins, setPins] = useSavedChoice("pins." + run.project, /** @type {string[]} */ ([]));
  const [wide, setWide] = useSavedChoice("wide." + run.project, /** @type {string[]} */ ([]));
  const [closed, setClosed] = useSavedChoice("closed", ["stepscope"]);
  const [expressions, setExpressions] = useList("expr", run.project);
  const theme = useShownTheme();
  const byStep = useFeed(id, feeds, { ...view.how, x: view.x, points: POINTS });
  // What has no steps (the machine's own readings) is drawn over time, beside.
  const timed = view.x === "step" || view.x === "metric";
  const byTime = useFeed(id, feeds, {
    ...view.how,
    x: timed ? "relative" : view.x,
    xKey: null,
    ...(timed ? { from: null, to: null } : {}),
    points: POINTS,
  });
  const shown = useMemo(() => picked(keys, search), [keys, search]);
  const groups = useMemo(() => grouped(shown, pins), [shown, pins]);
  const flags = useMemo(() => flagsOf(notes, view.x, run.started), [notes, view.x, run.started]);
  const look = useMemo(
    () => ({
      kind: view.x,
      window: view.window,
      log: view.log,
      weight: view.smooth,
      values: view.values,
      flags,
      marker: view.x === "step" ? step : null,
    }),
    [step, view.x, view.log, view.smooth, view.values, flags, view.window?.[0], view.window?.[1]],
  );
  const aside = useMemo(
    () => ({
      ...look,
      marker: null,
      kind: timed ? "relative" : view.x,
      window: timed ? null : look.window,
      flags: timed ? flagsOf(notes, "relative", run.started) : flags,
    }),
    [look],
  );
  useEffect(() => {
    byStep.recolour();
    byTime.recolour();
  }, [theme]);
  // What a card draws is the same object while nothing changed, so that only cards with findings have their own.
  const looks = useMemo(() => new Map(), [look, findings]);
  const lookOf = ({ key }) => {
    if (!looks.has(key)) {
      const about = view.x === "step" ? findingsOf(findings, key) : [];
      looks.set(key, about.length ? { ...look, findings: about } : look);
    }
    return looks.get(key);
  };
  const toggled = (list, key) => (list.includes(key) ? list.filter((each) => each !== key) : [...list, key]);

  const going = run.status === "running";
  const unknownAxis = view.xKey !== null && !keys.some(({ key }) => key === view.xKey);
  const pinnedKeys = (groups[0]?.[0] === "pinned" ? groups[0][1] : []).map(({ key }) => key);
  const card = (key) => {
    const stepless = key.first_step === null;
    const movable = movableAmong(key.key, short(key.key), pinnedKeys, pins, setPins);
    if (key.distribution && key.type === "step")
      return html`<${DistributionCard} key=${key.key} id=${id} title=${short(key.key)} metric=${key} view=${view} run=${run}
          going=${going} onStep=${onStep} ...${movable} pinned=${pins.includes(key.key)}
          onPin=${() => setPins(toggled(pins, key.key))} wide=${wide.includes(key.key)}
          onWide=${() => setWide(toggled(wide, key.key))} />`;
    const feed = stepless ? byTime : byStep,
      mine = stepless ? aside : lookOf(key);
    return html`<${ChartCard} key=${key.key} title=${short(key.key)} hint=${key.key} source=${sourceOf(feed, key)}
        look=${mine} ...${movable}
      group=${`run-${id}-${mine.kind}`} pinned=${pins.includes(key.key)} onPin=${() => setPins(toggled(pins, key.key))}
      wide=${wide.includes(key.key)} onWide=${() => setWide(toggled(wide, key.key))}
      empty=${
        view.xKey !== null ? `No step ${view.window ? "in this range " : ""}has both this and ${view.xKey}` : undefined
      }
      on=${
        stepless && timed
          ? {}
          : { zoom: view.zoom, reset: view.reset, pick: (mark, plot) => pick(id, key.key, mark, plot, view, onStep) }
      } />`;
  };

  return html`<${Controls} view=${view} keys=${keys} shown=${shown.length} flags=${left ? notes.length : null}
      run=${run}><${Expressions} list=${expressions} runs=${[run]} onChange=${setExpressions} /><//>
    ${
      !unknownAxis &&
      !search &&
      expressions.length > 0 &&
      html`<${ExpressionCards} run=${run} list=${expressions} onChange=${setExpressions} view=${view} look=${look}
          wide=${wide} onWide=${(key) => setWide(toggled(wide, key))} onStep=${onStep} />`
    }
    ${
      !keys.length &&
      html`<${Empty}
          title="No metrics yet">They appear here as soon as <code>run.log({"loss": …})</code> is called.<//>`
    }
    ${
      keys.length > 0 &&
      !shown.length &&
      html`<${Empty} title="No metric matches">No metric name contains “${search}”.<//>`
    }
    ${
      unknownAxis &&
      keys.length > 0 &&
      html`<${Empty} title=${`This run has no metric ${view.xKey}`}>
      It cannot be the x axis. <button type="button" class="button"
          onClick=${() => change({ x: null, from: null, to: null })}>Use steps</button>
      <//>`
    }
    ${
      !unknownAxis &&
      html`<${ChartSections} sections=${groups} isOpen=${(name) => search !== "" || !closed.includes(name)}
        onToggle=${(name) => setClosed(toggled(closed, name))} card=${card} wide=${wide} />`
    }`;
}

// The state of the charts, all of it in the address.
function useView() {
  const [xText] = useParam("x", "step");
  const [smoothText] = useParam("smooth", "0");
  const [logText] = useParam("log");
  const [rankText] = useParam("rank", "all");
  const [q] = useParam("q");
  const [fromText] = useParam("from");
  const [toText] = useParam("to");
  const [ghosts] = useParam("superseded", "1");
  const [values] = useParam("values");
  return useMemo(() => {
    const axis = axisOf(xText),
      { x, xKey } = axis,
      from = number(fromText),
      to = number(toText);
    return {
      ...axis,
      smooth: Math.min(0.99, Number(smoothText) || 0),
      log: logText === "1",
      values: values === "1",
      q,
      ranks: rankText,
      ghosts: ghosts === "1",
      window: from === null && to === null ? null : [from, to],
      how: { xKey, ranks: /^\d+$/.test(rankText) ? Number(rankText) : rankText, from, to, ghosts: ghosts === "1" },
      zoom: (low, high) => change(ends(low, high, x), { replace: false }),
      reset: () => change({ from: null, to: null }, { replace: false }),
    };
  }, [xText, smoothText, logText, rankText, q, fromText, toText, ghosts, values]);
}

const number = (text) => (text === "" || Number.isNaN(Number(text)) ? null : Number(text));

function useFeed(id, feeds, how) {
  const feed = useMemo(() => new Feed(id, how), [id]);
  useEffect(() => {
    feed.change(how);
  }, [JSON.stringify(how)]);
  useEffect(() => {
    feeds.add(feed);
    return () => {
      feeds.delete(feed);
      feed.close();
    };
  }, [feed]);
  return feed;
}

// The same object for the same key of a feed, so that a card does not begin anew.
function sourceOf(feed, key) {
  feed.sources ??= new Map();
  let found = feed.sources.get(key.key);
  if (!found) {
    found = {
      attempts: key.attempts,
      ranks: key.ranks,
      watch: (notify) => feed.watch({ ...found, key: key.key }, notify),
      read: () => feed.entry(key.key),
    };
    feed.sources.set(key.key, found);
  }
  Object.assign(found, { attempts: key.attempts, ranks: key.ranks });
  return found;
}

function picked(keys, search) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return keys.filter(({ key }) => words.every((word) => key.toLowerCase().includes(word)));
}

// The first parts of a dotted name, as OpenTelemetry and Datadog have them: signal.training of signal.training.loss.
const dotted = (key) => key.split(".").slice(0, -1).slice(0, 2).join(".");

export function grouped(keys, pins) {
  const groups = new Map();
  const shared = new Map();
  for (const { key, category } of keys) {
    if (!category) shared.set(dotted(key), (shared.get(dotted(key)) || 0) + 1);
  }
  const byKey = new Map(keys.map((each) => [each.key, each]));
  const pinned = pins.flatMap((key) => byKey.get(key) ?? []);
  for (const key of keys) {
    if (pins.includes(key.key)) continue;
    const name = key.category || (shared.get(dotted(key.key)) > 1 && dotted(key.key)) || "other";
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(key);
  }
  // A loss without a prefix comes before the parts of the model, as those of named categories do.
  const place = (name, list) =>
    FIRST.includes(name)
      ? FIRST.indexOf(name)
      : LAST.includes(name) && !(name === "other" && first(list) === 0)
        ? 100 + LAST.indexOf(name)
        : name === "other"
          ? 49
          : 50;
  for (const list of groups.values()) list.sort((a, b) => weight(a.key) - weight(b.key) || a.key.localeCompare(b.key));
  const first = (list) => weight(list[0].key);
  const ordered = [...groups].sort(
    ([a, x], [b, y]) => place(a, x) - place(b, y) || first(x) - first(y) || a.localeCompare(b),
  );
  return pinned.length ? [["pinned", pinned], ...ordered] : ordered;
}

// The loss comes first: it is what everybody looks for.
const weight = (key) =>
  /(^|[/.])(train_?)?loss$/.test(key) ? 0 : /loss/.test(key) ? 1 : /reward|accuracy/.test(key) ? 2 : 3;
const short = (key) => (key.includes("/") ? key.slice(key.indexOf("/") + 1) : key);

// What runs along x, as the address has it: steps, one of two times, or a metric by its name.
const PLAIN = ["step", "time", "relative"],
  METRIC = "metric:";

// The address's word for a metric: its name, marked where the name alone would mean something else.
export const axisText = (key) =>
  key === null ? null : PLAIN.includes(key) || key.startsWith(METRIC) ? METRIC + key : key;

export function axisOf(text) {
  if (PLAIN.includes(text)) return { x: text, xKey: null, xText: text };
  const xKey = text.startsWith(METRIC) ? text.slice(METRIC.length) : text;
  return { x: "metric", xKey, xText: axisText(xKey) };
}

// The ends of a zoom as the address has them: whole steps, or as many figures as its width needs.
export function ends(low, high, x) {
  if (x === "step") return { from: String(Math.floor(low)), to: String(Math.ceil(high)) };
  const most = Math.max(Math.abs(low), Math.abs(high)),
    digits = Math.ceil(Math.log10(most / (high - low))) + 5;
  const written = (value) => String(Number(value.toPrecision(Math.max(5, Math.min(17, digits || 5)))));
  return { from: written(low), to: written(high) };
}

/**
 * What may run along x: steps, two times, and metrics; also one that is chosen and no longer there.
 * @param {{ key: string }[]} keys
 * @param {string | null} xKey
 */
export function axesOf(keys, xKey) {
  const names = keys.map(({ key }) => key).filter((key) => !key.startsWith("stepscope/"));
  if (xKey !== null && !names.includes(xKey)) names.push(xKey);
  return [["step", "step"], ["relative", "time since start"], ["time", "wall time"], ...names.map(option)];
}

// The controls over a run's charts.
// `flags`: how many alerts and events are flagged where there are more, else null.
export function Controls({ view, keys, run, shown, flags, children }) {
  const ranks = [...new Set(keys.flatMap((key) => key.ranks))].sort((a, b) => a - b);
  const hasAttempts = keys.some((key) => key.attempts.length > 1);
  const along = keys.filter((key) => key.first_step !== null);
  return html`<div class="controls">
    <${Toolbar} label="Charts">
      <${Search} label="Find a metric" placeholder="Find a metric  /" value=${view.q}
          onChange=${(q) => change({ q })} />
      <${Select} label="x" hidden=${false} value=${view.xText}
          onChange=${(x) => change({ x: x === "step" ? null : x, from: null, to: null })} options=${axesOf(along, view.xKey)} />
      <${Smoothing} value=${view.smooth} />
      <${Switch} label="log" title="A logarithmic y axis" on=${view.log} onChange=${(on) => change({ log: on })} />
      <${Switch} label="values" title="The last, lowest and highest value of each line below its chart" on=${view.values}
          onChange=${(on) => change({ values: on })} />
      ${
        ranks.length > 1 &&
        html`<${Select} label="ranks" hidden=${false} value=${String(view.ranks)}
            onChange=${(rank) => change({ rank: rank === "all" ? null : rank })}
        options=${[
          ["all", "mean and range"],
          ["each", "each rank"],
          ...ranks.map((rank) => [String(rank), "rank " + rank]),
        ]} />`
      }
      ${
        hasAttempts &&
        html`<${Switch} label="superseded" title="Show steps that a later attempt repeated, in grey" on=${view.ghosts}
        onChange=${(on) => change({ superseded: on ? null : "0" })} />`
      }
      ${children}
    <//>
    <span class="controls-note muted">
      ${view.window && html`<button type="button" class="button" onClick=${view.reset}>${zoomWords(view)} ✕</button>`}
      ${
        flags !== null &&
        view.x !== "metric" &&
        html`<a href=${href("logs", { run: run.id })}
            title="All of them are in the logs">Flags: the newest ${count(flags)} alerts and events</a>`
      }
      ${view.q && html`<span>${count(shown)} of ${count(keys.length)}</span>`}
    </span>
  </div>`;
}

// A metric as a choice for the x axis; one named like a built-in choice is marked.
const option = (key) => [axisText(key), axisText(key) === key ? key : `${key} (metric)`];

function zoomWords({ window: [from, to], x }) {
  return `${from === null ? "…" : formatX(x, from)} to ${to === null ? "…" : formatX(x, to).replace("step ", "")}`;
}

export function Smoothing({ value }) {
  return html`<label class="smoothing" title="Smoothing; the raw values stay visible">
    <span class="select-label">smooth</span>
    <input type="range" min="0" max="0.99" step="0.01" value=${value} aria-valuetext=${value ? String(value) : "off"}
      onInput=${(event) => change({ smooth: Number(event.target.value) || null })} />
    <output class="mono">${value ? value.toFixed(2) : "off"}</output></label>`;
}
