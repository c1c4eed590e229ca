// All charts of a run, by category, under one set of controls; only those near the screen are drawn.
import { html, useEffect, useMemo } from "../h.js";
import { change, useParam } from "../router.js";
import { useKept, useSettled } from "../use.js";
import { useShownTheme } from "../theme.js";
import { count } from "../parts/format.js";
import { Icon } from "../parts/icons.js";
import { Empty } from "../parts/states.js";
import { ChartCard } from "../charts/card.js";
import { Feed } from "../charts/feed.js";
import { flagsOf } from "../charts/flags.js";
import { pick } from "../charts/pick.js";
import { axisOf, ends } from "./axis.js";
import { Controls } from "./controls.js";

const POINTS = 800;
const FIRST = ["trainer", "actor", "evaluator"],
  LAST = ["misc", "system", "stepscope"];

export function Charts({ id, run, keys, notes, left, feeds, onStep, step }) {
  const view = useView();
  const search = useSettled(view.q, 150);
  const [pins, setPins] = useKept("pins." + run.project, []);
  const [wide, setWide] = useKept("wide." + run.project, []);
  const [closed, setClosed] = useKept("closed", ["stepscope"]);
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
      flags,
      marker: view.x === "step" ? step : null,
    }),
    [step, view.x, view.log, view.smooth, flags, view.window?.[0], view.window?.[1]],
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
  const toggled = (list, key) => (list.includes(key) ? list.filter((each) => each !== key) : [...list, key]);

  const stranger = view.xKey !== null && !keys.some(({ key }) => key === view.xKey);
  const card = (key) => {
    const stepless = key.first_step === null;
    const feed = stepless ? byTime : byStep,
      mine = stepless ? aside : look;
    return html`<${ChartCard} key=${key.key} title=${short(key.key)} hint=${key.key} source=${sourceOf(feed, key)}
        look=${mine}
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
      run=${run} />
    ${
      !keys.length &&
      html`<${Empty}
          title="No metrics yet">They appear here as soon as <code>run.log({"loss": …})</code> is called.<//>`
    }
    ${
      keys.length > 0 &&
      !shown.length &&
      html`<${Empty} title="No metric matches">Nothing has “${search}” in its name.<//>`
    }
    ${
      stranger &&
      keys.length > 0 &&
      html`<${Empty} title=${`This run has no metric ${view.xKey}`}>
      So nothing can be drawn over it. <button type="button" class="button"
          onClick=${() => change({ x: null, from: null, to: null })}>Draw over steps</button>
      <//>`
    }
    ${
      !stranger &&
      groups.map(([name, list]) => {
        const open = search !== "" || !closed.includes(name);
        return html`<section class="chart-group" key=${name} aria-label=${name}>
        <h2>
          <button type="button" class="group-head" aria-expanded=${String(open)}
              onClick=${() => setClosed(toggled(closed, name))}>
          <${Icon} name=${open ? "down" : "right"} size=${12} />${name}
            <span class="muted">${count(list.length)}</span></button>
          </h2>
        ${open && html`<div class="charts">${list.map(card)}</div>`}
      </section>`;
      })
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
  return useMemo(() => {
    const axis = axisOf(xText),
      { x, xKey } = axis,
      from = number(fromText),
      to = number(toText);
    return {
      ...axis,
      smooth: Math.min(0.99, Number(smoothText) || 0),
      log: logText === "1",
      q,
      ranks: rankText,
      ghosts: ghosts === "1",
      window: from === null && to === null ? null : [from, to],
      how: { xKey, ranks: /^\d+$/.test(rankText) ? Number(rankText) : rankText, from, to, ghosts: ghosts === "1" },
      zoom: (low, high) => change(ends(low, high, x), { replace: false }),
      reset: () => change({ from: null, to: null }, { replace: false }),
    };
  }, [xText, smoothText, logText, rankText, q, fromText, toText, ghosts]);
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
      watch: (told) => feed.watch(key.key, found.attempts, told),
      read: () => feed.entry(key.key),
    };
    feed.sources.set(key.key, found);
  }
  found.attempts = key.attempts;
  return found;
}

function picked(keys, search) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return keys.filter(({ key }) => words.every((word) => key.toLowerCase().includes(word)));
}

function grouped(keys, pins) {
  const groups = new Map();
  const pinned = keys.filter(({ key }) => pins.includes(key));
  for (const key of keys) {
    if (pins.includes(key.key)) continue;
    const name = key.category || "other";
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(key);
  }
  const place = (name) =>
    FIRST.includes(name) ? FIRST.indexOf(name) : LAST.includes(name) ? 100 + LAST.indexOf(name) : 50;
  const ordered = [...groups].sort(([a], [b]) => place(a) - place(b) || a.localeCompare(b));
  for (const [, list] of ordered) list.sort((a, b) => weight(a.key) - weight(b.key) || a.key.localeCompare(b.key));
  return pinned.length ? [["pinned", pinned], ...ordered] : ordered;
}

// The loss comes first: it is what everybody looks for.
const weight = (key) =>
  /(^|\/)(train_?)?loss$/.test(key) ? 0 : /loss/.test(key) ? 1 : /reward|accuracy/.test(key) ? 2 : 3;
const short = (key) => (key.includes("/") ? key.slice(key.indexOf("/") + 1) : key);
