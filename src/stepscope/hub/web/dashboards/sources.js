// Where a dashboard's charts get their lines: metrics of a run by key, expressions of them, or quantiles along it.
import { get, runPath } from "../api.js";
import { seriesColour } from "../theme.js";
import { marksOf } from "../charts/marks.js";
import { canonicalKey } from "../parts/metric_names.js";

export const POINTS = 800;
const RELOAD_MS = 4000,
  MAX_LINES = 12;

// Which names a pattern means; `*` stands for anything. Neither case nor the spelling of a category matters.
export function matching(patterns, names) {
  const found = new Set();
  for (const pattern of patterns) {
    const tests = [...new Set([pattern, canonicalKey(pattern)])].map(globTest);
    const fits = (name) => tests.some((test) => test.test(name) || test.test(canonicalKey(name)));
    for (const name of names) if (fits(name)) found.add(name);
  }
  return [...found].slice(0, MAX_LINES);
}

function globTest(pattern) {
  const parts = pattern.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\/]/g, "\\$&"));
  return new RegExp("^" + parts.join(".*") + "$", "i");
}

// The shortest distinct suffix of a name.
export function shortened(names) {
  const parts = names.map((name) => name.split(/[/.]/));
  return names.map((name, at) => {
    for (let many = 1; many <= parts[at].length; many++) {
      const tail = parts[at].slice(-many).join("/");
      if (parts.every((other, k) => k === at || other.slice(-many).join("/") !== tail)) return tail;
    }
    return name;
  });
}

// The lines of some keys of a feed as one chart.
export function keySource(feed, keys, unit) {
  const names = shortened(keys.map((each) => each.key));
  return {
    watch(notify) {
      const stops = keys.map((each) => feed.watch(each, notify));
      return () => stops.forEach((stop) => stop());
    },
    read() {
      const entries = keys.map((each) => feed.entry(each.key));
      const lines = entries.flatMap((entry, at) =>
        entry.lines
          .filter((line) => !line.ghost)
          .map((line) => ({
            ...line,
            id: entry.key,
            key: entry.key,
            name: entry.key,
            short: names[at],
            at,
            colour: seriesColour(at),
            dash: [],
          })),
      );
      return {
        lines,
        loading: entries.some((entry) => entry.loading || entry.stale),
        error: entries.find((entry) => entry.error)?.error || null,
        superseded: entries.reduce((sum, entry) => sum + (entry.superseded || 0), 0),
        unit: unit || entries.find((entry) => entry.unit)?.unit || "",
      };
    },
  };
}

// Lines that `read` fetches, and fetches again periodically while the run continues.
function fetchedSource(read, unit) {
  const state = { lines: /** @type {any[]} */ ([]), loading: true, error: null, superseded: 0, unit };
  const watchers = new Set();
  let loadedAt = 0,
    busy = false;
  async function load() {
    busy = true;
    loadedAt = performance.now();
    try {
      state.lines = await read();
      state.error = null;
    } catch (error) {
      state.error = error;
    }
    state.loading = busy = false;
    for (const notify of watchers) notify(false);
  }
  return {
    watch(notify) {
      watchers.add(notify);
      if (!loadedAt) load();
      return () => watchers.delete(notify);
    },
    read: () => ({ ...state, lines: state.lines.map((line) => ({ ...line, colour: seriesColour(line.at) })) }),
    stir() {
      if (watchers.size && !busy && performance.now() - loadedAt > RELOAD_MS) load();
    },
  };
}

// The lines of two sources in one chart.
export function joinedSource(first, second, shift) {
  return {
    watch(notify) {
      const stops = [first.watch(notify), second.watch(notify)];
      return () => stops.forEach((stop) => stop());
    },
    read() {
      const one = first.read(),
        other = second.read();
      const moved = other.lines.map((line) => ({
        ...line,
        at: line.at + shift,
        colour: seriesColour(line.at + shift),
      }));
      return {
        ...one,
        lines: [...one.lines, ...moved],
        loading: one.loading || other.loading,
        error: one.error || other.error,
      };
    },
    stir() {
      first.stir?.();
      second.stir();
    },
  };
}

// Expressions of metrics, as the workspace has them: the hub evaluates them.
export function expressionSource(run, expressions, x, unit, range = {}) {
  const read = async () => {
    const answers = await Promise.all(
      expressions.map((expression) => get("series", { run, expression, x, ...range, points: POINTS })),
    );
    return answers.flatMap(({ lines, key }, at) =>
      lines.map((line) => ({
        ...{ id: key, name: key, short: key, at, dash: [], rank: null },
        marks: marksOf({ ...line, shape: "buckets", aligned: false }, POINTS),
        last: line.last === null ? null : { value: line.last, step: line.last_step, ranks: [], values: [] },
      })),
    );
  };
  return fetchedSource(read, unit);
}

// Quantiles of keys and spans.
export function quantileSource(run, { keys, spans, levels, x, unit, origin }) {
  const names = shortened([...keys, ...spans]);
  const read = async () => {
    const answer = await get(runPath(run, "quantiles"), {
      key: keys,
      span: spans,
      q: levels,
      x: x === "step" ? "step" : "time",
      points: 200,
    });
    return answer.series.flatMap((line, at) =>
      levels.map((level, k) => lineOf(line, level, at * levels.length + k, names[at])),
    );
  };
  function lineOf({ name, columns }, level, at, short) {
    const along = x === "relative" ? columns.x.map((time) => time - origin) : columns.x;
    const values = columns[`q${level}`] || [];
    const total = columns.count.reduce((sum, each) => sum + each, 0);
    const marks = marksOf(
      { shape: "raw", columns: { x: along, value: values, rank: along.map(() => null) }, total },
      POINTS,
    );
    const label = `p${Math.round(level * 1000) / 10}`;
    return {
      id: `${name} ${label}`,
      rank: null,
      marks,
      last: values.length ? { value: values.at(-1), step: null, ranks: [], values: [] } : null,
      name: `${name} ${label}`,
      short: `${short} ${label}`,
      colour: seriesColour(at),
      at,
      origin,
    };
  }
  return fetchedSource(read, unit);
}
