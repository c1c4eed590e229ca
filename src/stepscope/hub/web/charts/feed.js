// The lines of one run for all charts that show it: fetched together, kept up to date by the live stream.
import { seriesColour, seriesDash } from "../theme.js";
import { append, catchUp } from "./following.js";
import { lineOf, rankParams, readAlong, readLines, readSuperseded } from "./reading.js";

const AT_ONCE = 3; // lines in one question
const RELOAD_MS = 3000; // between two readings of lines over another metric, which the stream cannot continue
const MAX_GHOSTS = 4; // earlier attempts that are drawn, the newest

const styleAt = (at) => ({ colour: seriesColour(at), dash: seriesDash(at) });

export class Feed {
  /**
   * @param {string} run
   * @param {import("./reading.js").How} how
   */
  constructor(run, how) {
    this.run = run;
    this.how = how;
    this.entries = new Map();
    this.waiting = new Set();
    this.timer = 0;
    this.renewal = 0;
    this.took = 0;
    this.turn = 0;
    this.control = new AbortController();
    this.loads = new Set(); // what is being fetched: { keys, control }
  }

  // The entry of a key: { lines, loading, error, version, attempts }. Charts listen with `watch`.
  entry(key) {
    let found = this.entries.get(key);
    if (!found) {
      found = { key, lines: [], loading: false, error: null, stale: true, attempt: 0, watchers: new Set() };
      this.entries.set(key, found);
    }
    return found;
  }

  // Call `notify` when the lines of a metric change, and request them where needed.
  watch({ key, attempts, ranks }, notify) {
    const entry = this.entry(key);
    entry.attempts = attempts;
    entry.known = ranks;
    entry.watchers.add(notify);
    if (entry.stale) this.want(key);
    return () => {
      entry.watchers.delete(notify);
      this.cancel(entry);
    };
  }

  // A question of which nobody watches a key any more, as when its charts were scrolled past, is taken back.
  cancel({ key, watchers }) {
    if (watchers.size) return;
    this.waiting.delete(key);
    for (const load of this.loads) {
      if (!load.keys.includes(key) || load.keys.some((each) => this.entry(each).watchers.size)) continue;
      this.loads.delete(load);
      load.control.abort();
      for (const each of load.keys) Object.assign(this.entry(each), { loading: false, stale: true });
    }
  }

  want(key) {
    this.waiting.add(key);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.loadWaiting(), 15);
  }

  // Look at it another way: what is shown stays until the answer is there.
  change(how) {
    const same = JSON.stringify(how) === JSON.stringify(this.how);
    this.how = how;
    if (!same) this.refresh();
  }

  refresh() {
    this.turn++;
    this.control.abort();
    this.control = new AbortController();
    for (const load of this.loads) load.control.abort();
    this.loads.clear();
    for (const entry of this.entries.values()) {
      entry.stale = true;
      entry.loading = false;
      if (entry.watchers.size) this.want(entry.key);
    }
  }

  close() {
    clearTimeout(this.timer);
    clearTimeout(this.renewal);
    this.control.abort();
    for (const load of this.loads) load.control.abort();
  }

  loadWaiting() {
    const keys = [...this.waiting].filter((key) => !this.entry(key).loading);
    this.waiting.clear();
    for (const key of keys) Object.assign(this.entry(key), { loading: true, stale: false });
    const along =
      keys.length && this.how.x === "metric" ? readAlong(this.run, this.how, {}, this.control.signal) : null;
    for (let i = 0; i < keys.length; i += AT_ONCE) this.load(keys.slice(i, i + AT_ONCE), along);
  }

  metrics(keys) {
    return keys.map((key) => ({ key, ranks: this.entry(key).known }));
  }

  async load(keys, reading) {
    const { how, turn } = this,
      began = performance.now(),
      load = { keys, control: new AbortController() };
    this.loads.add(load);
    try {
      const along = await reading;
      const params = { ...rankParams(how), ...along?.steps };
      const found = await readLines(this.run, how, this.metrics(keys), params, load.control.signal);
      if (turn !== this.turn) return;
      for (const key of keys) this.fill(this.entry(key), found, along);
      this.took = performance.now() - began;
      if (how.ghosts) this.addSuperseded(keys, found);
    } catch (error) {
      if (turn !== this.turn || error.name === "AbortError") return;
      for (const key of keys) Object.assign(this.entry(key), { loading: false, error });
    } finally {
      this.loads.delete(load);
    }
    for (const key of keys) this.notify(key);
  }

  // What earlier attempts logged at steps that a later one repeated, drawn grey behind once it is read.
  async addSuperseded(keys, found) {
    const drawn = (key) => this.entry(key).lines.some((line) => line.ghost);
    const superseded = keys.filter(
      (key) => !drawn(key) && found.some((line) => line.key === key && line.superseded > 0),
    );
    if (!superseded.length) return;
    const { turn, how } = this;
    const attempts = [...new Set(superseded.flatMap((key) => this.entry(key).attempts || []))]
      .sort((a, b) => a - b)
      .slice(0, -1)
      .slice(-MAX_GHOSTS);
    const all = await readSuperseded(this.run, how, this.metrics(superseded), attempts, this.control.signal).catch(
      () => [],
    );
    if (turn !== this.turn) return;
    for (const key of superseded) {
      const entry = this.entry(key),
        old = all.filter(({ line }) => line.key === key);
      entry.lines = [
        ...old.map(({ line, along }, at) => lineOf(line, at, { points: how.points, ghost: true, along })),
        ...entry.lines.filter((line) => !line.ghost),
      ];
      this.notify(key);
    }
  }

  fill(entry, found, along) {
    const mine = found.filter((line) => line.key === entry.key);
    // Read again with the same parameters, the lines of an earlier attempt are still valid.
    const ghosts = entry.turn === this.turn ? entry.lines.filter((line) => line.ghost) : [];
    entry.turn = this.turn;
    entry.scoped = new Set(mine.map((line) => line.scope)).size > 1;
    const place = (line, at) => (line.rank === null || entry.scoped ? at : line.rank);
    const how = { points: this.how.points, scoped: entry.scoped, along };
    entry.lines = [...ghosts, ...mine.map((line, at) => lineOf(line, place(line, at), how))];
    entry.ranks = [...new Set(mine.flatMap((line) => line.ranks))];
    entry.unit = mine[0]?.unit || "";
    entry.superseded = mine.reduce((sum, line) => sum + line.superseded, 0);
    entry.attempt = Math.max(0, ...(entry.attempts || []));
    entry.loading = false;
    entry.error = null;
    if (entry.pending?.length && this.appends(entry)) catchUp(entry, this.how);
    entry.pending = null;
  }

  // The stream began: what was read before may lack points that arrived in between.
  begin() {
    if ([...this.entries.values()].some((entry) => !entry.stale)) this.refresh();
  }

  // Take the points of a live event: { rank, attempt, points: { key: { step, time, value } } }.
  // Returns the keys that no chart knows yet.
  take({ rank, attempt, points }) {
    const unknown = [];
    if (this.how.x === "metric" && Object.keys(points || {}).length) this.renew();
    for (const [key, columns] of Object.entries(points || {})) {
      const entry = this.entries.get(key);
      if (!entry) unknown.push(key);
      else if (attempt > entry.attempt && entry.attempt > 0) this.beginAttempt(entry, attempt);
      else if (entry.loading) (entry.pending ??= []).push([rank, columns]);
      else if (!entry.stale && this.appends(entry) && append(entry, this.how, rank, columns)) this.notify(key, true);
    }
    return unknown;
  }

  beginAttempt(entry, attempt) {
    Object.assign(entry, { attempt, attempts: [...(entry.attempts || []), attempt], stale: true, turn: null });
    this.want(entry.key);
  }

  // Only the hub knows which steps have both metrics, so it is polled, less often where a request takes long.
  renew() {
    this.renewal ||= setTimeout(
      () => {
        this.renewal = 0;
        for (const entry of this.entries.values()) if (entry.watchers.size) this.want(entry.key);
      },
      Math.max(RELOAD_MS, 5 * this.took),
    );
  }

  // Whether points can be appended: over another metric, or where the stream does not say the scope, lines are read again.
  appends({ scoped }) {
    if (scoped && this.how.x !== "metric") this.renew();
    return !scoped && this.how.x !== "metric";
  }

  notify(key, live = false) {
    const { lines, watchers } = this.entry(key);
    for (const line of lines) if (!line.colour) Object.assign(line, styleAt(line.at));
    for (const notify of watchers) notify(live);
  }

  // Colours are of the theme; lines take them anew.
  recolour() {
    for (const entry of this.entries.values()) {
      for (const line of entry.lines) Object.assign(line, styleAt(line.at));
      this.notify(entry.key);
    }
  }
}
