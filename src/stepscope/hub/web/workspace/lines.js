// The lines of many runs for all charts of a workspace: one request for each metric in sight, and only for the runs that
// it lacks; runs that go on are read again, less often where a request takes long.
import { get } from "../api.js";
import { seriesColour, seriesDash } from "../theme.js";
import { marksOf } from "../charts/marks.js";
import { askedOf } from "./expressions.js";

const MAX_RUNS = 100; // in one request
const RELOAD_MS = 2500;
const SOON_MS = 15;

/**
 * @typedef {{ key: string, lines: Map<string, any>, due: Set<string>, loading: number, error: any, turn: number,
 *   watchers: Set<(live: boolean) => void>, control: AbortController, x: string }} Entry
 */

export class RunLines {
  constructor() {
    /** @type {Map<string, Entry>} */
    this.entries = new Map();
    /** @type {any[]} */
    this.runs = []; // those that are visible, in their order
    this.styles = new Map();
    this.how = { x: "step", along: /** @type {string | null} */ (null), from: null, to: null, points: 256 };
    this.version = 0; // of what `read` depends on besides lines
    this.timer = 0;
    this.renewal = 0;
    this.took = 0;
    this.moved = new Set();
  }

  /** @returns {Entry} */
  entry(key) {
    let found = this.entries.get(key);
    if (!found) {
      found = {
        key,
        lines: new Map(),
        due: new Set(),
        loading: 0,
        error: null,
        turn: 0,
        watchers: new Set(),
        control: new AbortController(),
        x: "step",
      };
      this.entries.set(key, found);
    }
    return found;
  }

  // Show these runs, in these styles; charts lack the lines of those that are new.
  show(runs, styles) {
    this.runs = runs;
    this.styles = styles;
    this.version++;
    for (const entry of this.entries.values()) for (const notify of entry.watchers) notify(false);
    this.soon();
  }

  change(how) {
    if (JSON.stringify(how) === JSON.stringify(this.how)) return;
    this.how = how;
    for (const entry of this.entries.values()) this.forget(entry);
    this.soon();
  }

  // What is shown stays until the new lines are there.
  forget(entry) {
    entry.control.abort();
    entry.control = new AbortController();
    entry.turn++;
    entry.loading = 0;
    entry.due = new Set(entry.lines.keys());
    entry.error = null;
  }

  watch(key, notify) {
    const entry = this.entry(key);
    entry.watchers.add(notify);
    this.soon();
    return () => {
      entry.watchers.delete(notify);
      if (entry.watchers.size || !entry.loading) return;
      entry.control.abort();
      entry.control = new AbortController();
      entry.turn++;
      entry.loading = 0;
    };
  }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), SOON_MS);
  }

  // Some runs went on: their lines are read again.
  move(ids) {
    for (const id of ids) this.moved.add(id);
    if (!this.moved.size) return;
    this.renewal ||= setTimeout(
      () => {
        this.renewal = 0;
        for (const entry of this.entries.values()) for (const id of this.moved) entry.due.add(id);
        this.moved.clear();
        this.load();
      },
      Math.max(RELOAD_MS, 5 * this.took),
    );
  }

  load() {
    for (const entry of this.entries.values()) {
      if (!entry.watchers.size || entry.loading) continue;
      const lacking = this.runs.map(({ id }) => id).filter((id) => !entry.lines.has(id) || entry.due.has(id));
      for (let at = 0; at < lacking.length; at += MAX_RUNS) this.read(entry, lacking.slice(at, at + MAX_RUNS));
    }
  }

  async read(entry, ids) {
    const { turn } = entry,
      began = performance.now(),
      // What has no steps, the readings of the machine, is drawn over time.
      x = entry.key.startsWith("system/") && ["step", "metric"].includes(this.how.x) ? "relative" : this.how.x,
      window = x === this.how.x ? { from: this.how.from, to: this.how.to } : {};
    entry.loading++;
    for (const id of ids) entry.due.delete(id);
    try {
      const over = x === "metric" ? { along: this.how.along } : { x };
      const params = { run: ids, ...askedOf(entry.key), ...over, points: this.how.points, ...window };
      const answer = await get("series", params, entry.control.signal);
      if (turn !== entry.turn) return;
      const found = new Map(answer.lines.map((line) => [line.run, line]));
      for (const id of ids) entry.lines.set(id, made(found.get(id), answer.width));
      entry.x = x;
      entry.error = null;
      this.took = performance.now() - began;
    } catch (error) {
      if (turn !== entry.turn || error.name === "AbortError") return;
      for (const id of ids) entry.due.add(id);
      entry.error = error;
    }
    entry.loading = Math.max(0, entry.loading - 1);
    for (const notify of entry.watchers) notify(false);
    if (!entry.error) this.soon(); // for runs that were shown meanwhile
  }

  // The lines of the visible runs that have the metric; null stands for a run that has it not.
  lines(key) {
    const entry = this.entry(key);
    return this.runs.flatMap((run) => {
      const line = entry.lines.get(run.id);
      if (!line) return [];
      const at = this.styles.get(run.id) ?? 0,
        name = run.name || run.id;
      const style = { id: run.id, run: run.id, name, short: name, at, colour: seriesColour(at), dash: seriesDash(at) };
      return [Object.assign(line, style)];
    });
  }

  state(key) {
    const entry = this.entry(key),
      lacks = this.runs.some(({ id }) => !entry.lines.has(id));
    return { loading: entry.loading > 0 || (lacks && !entry.error), error: entry.error };
  }

  close() {
    clearTimeout(this.timer);
    clearTimeout(this.renewal);
    for (const entry of this.entries.values()) entry.control.abort();
  }
}

function made(line, width) {
  if (!line) return null;
  const marks = marksOf({ ...line, shape: "buckets", aligned: false }, Infinity);
  const { step, step_last: stepLast } = line.columns;
  if (step) Object.assign(marks, { steps: step.map((first, i) => [first, stepLast[i]]) });
  marks.wide = marks.low.some((low, i) => low !== null && (marks.high[i] ?? low) > low);
  return {
    key: line.key,
    ghost: false,
    rank: null,
    marks,
    width,
    unit: line.unit,
    last: line.last === null ? null : { value: line.last, step: line.last_step, ranks: new Array(line.ranks).fill(0) },
    low: line.min,
    high: line.max,
  };
}
