// The charts of a comparison: one for each metric, a line for each run that has it.
import { html, useEffect, useMemo, useRef } from "../h.js";
import { change, go, href, useParam } from "../router.js";
import { useLive, useDebounced } from "../use.js";
import { runStyles, seriesColour, seriesDash } from "../theme.js";
import { Search, Select, Switch, Toolbar } from "../parts/controls.js";
import { Empty } from "../parts/states.js";
import { ChartCard } from "../charts/card.js";
import { Feed } from "../charts/feed.js";
import { pick } from "../charts/pick.js";

const POINTS = 600;

export function Overlay({ runs, theme }) {
  const [x] = useParam("x", "step");
  const [smooth] = useParam("smooth", "0");
  const [log] = useParam("log");
  const [q] = useParam("q");
  const [from] = useParam("from");
  const [to] = useParam("to");
  const search = useDebounced(q, 150).toLowerCase();
  const window = from || to ? [from === "" ? null : Number(from), to === "" ? null : Number(to)] : null;
  const how = {
    x,
    xKey: null,
    ranks: "all",
    from: window?.[0] ?? null,
    to: window?.[1] ?? null,
    points: POINTS,
    ghosts: false,
  };
  const feeds = useMemo(() => runs.map((run) => new Feed(run.id, how)), []);
  useEffect(() => {
    for (const feed of feeds) feed.change(how);
  }, [JSON.stringify(how)]);
  useEffect(() => {
    for (const feed of feeds) feed.recolour();
  }, [theme]);
  useEffect(() => () => feeds.forEach((feed) => feed.close()), []);
  useFollowing(runs, feeds);
  const keys = useMemo(() => shared(runs, x), [runs, x]);
  const shown = keys.filter(({ key }) => key.toLowerCase().includes(search));
  const look = useMemo(
    () => ({ kind: x, window, log: log === "1", weight: Number(smooth) || 0, flags: [] }),
    [x, from, to, log, smooth],
  );
  const sources = useRef(new Map());
  const source = (key) => {
    if (!sources.current.has(key)) sources.current.set(key, joined(runs, feeds, key));
    return sources.current.get(key);
  };
  const on = (key) => ({
    zoom: (low, high) =>
      change(
        { from: x === "step" ? Math.floor(low) : low.toFixed(3), to: x === "step" ? Math.ceil(high) : high.toFixed(3) },
        { replace: false },
      ),
    reset: () => change({ from: null, to: null }, { replace: false }),
    pick: (mark, plot) =>
      pick(mark.line.run, mark.line.key || key, mark, plot, { x }, (step, rank) =>
        go(href("run", mark.line.run, { step, at: rank })),
      ),
  });
  return html`<div class="controls"><${Toolbar} label="Charts">
      <${Search} label="Find a metric" placeholder="Find a metric  /" value=${q}
          onChange=${(text) => change({ q: text })} />
      <${Select} label="x" hidden=${false} value=${x}
          onChange=${(next) => change({ x: next === "step" ? null : next, from: null, to: null })} options=${[
            ["step", "step"],
            ["relative", "time since start"],
            ["time", "wall time"],
          ]} />
      <label class="smoothing"><span class="select-label">smooth</span>
        <input type="range" min="0" max="0.99" step="0.01" value=${smooth}
            onInput=${(event) => change({ smooth: Number(event.target.value) || null })} />
      </label>
      <${Switch} label="log" on=${log === "1"} onChange=${(next) => change({ log: next })} />
    <//>
      ${
        window &&
        html`<button type="button" class="button controls-note"
            onClick=${() => change({ from: null, to: null })}>Whole range ✕</button>`
      }
    </div>
    ${
      shown.length
        ? html`<div class="charts">
          ${shown.map(
            ({ key }) =>
              html`<${ChartCard} key=${key} title=${key} source=${source(key)} look=${look} on=${on(key)}
                  group="compare" />`,
          )}
        </div>`
        : html`<${Empty} title="No metric in common" />`
    }`;
}

// Metrics of two runs or more come first; among them the loss is first and readings of the machine are last.
function shared(runs, x) {
  const amounts = new Map();
  for (const run of runs) {
    const own = run.keys.filter(
      (key) => !key.key.startsWith("stepscope/") && (x !== "step" || key.first_step !== null),
    );
    for (const name of new Set(own.map((key) => key.name))) amounts.set(name, (amounts.get(name) || 0) + 1);
  }
  const place = (key) => (/(^|\/)loss$/.test(key) ? 0 : key.startsWith("system/") ? 2 : 1);
  return [...amounts]
    .map(([key, n]) => ({ key, n }))
    .sort((a, b) => Number(b.n > 1) - Number(a.n > 1) || place(a.key) - place(b.key) || a.key.localeCompare(b.key));
}

// One source out of the feeds of several runs: a line for each run, in the run's colour. A metric has one name whatever
// the run calls its category: train/loss and trainer/loss are compared.
function joined(runs, feeds, name) {
  const styles = runStyles(runs);
  const having = runs
    .map((run, at) => ({ run, feed: feeds[at], key: run.keys.find((each) => each.name === name) }))
    .filter((each) => each.key);
  return {
    watch: (notify) => {
      const stops = having.map(({ feed, key }) => feed.watch(key, notify));
      return () => stops.forEach((stop) => stop());
    },
    read: () => {
      const entries = having.map(({ feed, key: { key } }) => feed.entry(key));
      return {
        lines: having.flatMap(({ run, key: { key } }, i) =>
          entries[i].lines
            .filter((line) => !line.ghost)
            .slice(0, 1)
            .map((line) => {
              Object.assign(line, {
                id: run.id,
                run: run.id,
                key,
                name: run.name || run.id,
                short: run.name || run.id,
                colour: seriesColour(styles.get(run.id)),
                dash: seriesDash(styles.get(run.id)),
                at: styles.get(run.id),
              });
              return line;
            }),
        ),
        loading: entries.some((entry) => entry.loading || entry.stale),
        error: entries.find((entry) => entry.error)?.error || null,
        unit: entries[0]?.unit,
      };
    },
  };
}

function useFollowing(runs, feeds) {
  const going = runs
    .map((run, at) => ({ run, feed: feeds[at] }))
    .filter(({ run }) => run.status === "running")
    .slice(0, 3);
  // Browsers allow few streams at once; the first runs that go on are followed.
  for (const at of [0, 1, 2]) {
    const mine = going[at];
    useLive(
      mine ? { run: mine.run.id, kind: ["metric"] } : null,
      { records: (data) => mine?.feed.take(data), gap: () => mine?.feed.refresh() },
      [mine?.run.id],
    );
  }
}
