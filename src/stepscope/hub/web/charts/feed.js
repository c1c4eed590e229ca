// The lines of one run for all charts that show it: asked for together, kept up to date by the live stream.
import { get, runPath } from "../api.js";
import { real } from "../parts/format.js";
import { seriesColour } from "../theme.js";
import { Marks, marksOf, over } from "./marks.js";

const AT_ONCE = 3;   // lines in one question

// how: { x: "step"|"time"|"relative"|"metric", xKey, ranks: "all"|"each"|number, from, to, points, ghosts }
export class Feed {
  constructor(run, how) {
    this.run = run;
    this.how = how;
    this.entries = new Map();
    this.waiting = new Set();
    this.timer = 0;
    this.turn = 0;
    this.control = new AbortController();
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

  // Be told when the lines of a key changed; asks for them where that is needed. `attempts` are those of the key.
  watch(key, attempts, told) {
    const entry = this.entry(key);
    entry.attempts = attempts;
    entry.watchers.add(told);
    if (entry.stale) this.want(key);
    return () => entry.watchers.delete(told);
  }

  want(key) {
    this.waiting.add(key);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), 15);
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
    for (const entry of this.entries.values()) {
      entry.stale = true;
      entry.loading = false;
      if (entry.watchers.size) this.want(entry.key);
    }
  }

  close() {
    clearTimeout(this.timer);
    this.control.abort();
  }

  ask() {
    const keys = [...this.waiting].filter((key) => !this.entry(key).loading);
    this.waiting.clear();
    for (const key of keys) Object.assign(this.entry(key), { loading: true, stale: false });
    for (let i = 0; i < keys.length; i += AT_ONCE) this.load(keys.slice(i, i + AT_ONCE));
  }

  async load(keys) {
    const { how, turn } = this;
    try {
      const xs = how.x === "metric" ? await this.lines([how.xKey], {}) : null;
      const found = await this.lines(keys, how.ranks === "each" ? { by_rank: true } : typeof how.ranks === "number" ? { rank: how.ranks } : {});
      if (turn !== this.turn) return;
      for (const key of keys) this.fill(this.entry(key), found, xs);
      if (how.ghosts) this.haunt(keys, found);
    } catch (error) {
      if (turn !== this.turn || error.name === "AbortError") return;
      for (const key of keys) Object.assign(this.entry(key), { loading: false, error });
    }
    for (const key of keys) this.tell(key);
  }

  async lines(keys, params) {
    const { how } = this, x = how.x === "metric" ? "step" : how.x;
    const window = how.x === "metric" ? {} : { from: how.from, to: how.to };
    const answer = await get(runPath(this.run, "series"), { key: keys, x, points: how.points, ...window, ...params }, this.control.signal);
    return answer.series;
  }

  // What earlier attempts had where a later one began again, drawn grey behind once it is there.
  async haunt(keys, found) {
    const again = keys.filter((key) => found.some((line) => line.key === key && line.superseded > 0));
    if (!again.length || this.how.x !== "step") return;
    const { turn } = this;
    const attempts = [...new Set(again.flatMap((key) => this.entry(key).attempts || []))].sort((a, b) => a - b).slice(0, -1).slice(-4);
    const all = await Promise.all(attempts.map((attempts) => this.lines(again, { attempts }))).catch(() => []);
    if (turn !== this.turn) return;
    for (const key of again) {
      const entry = this.entry(key), old = all.flat().filter((line) => line.key === key && line.total > 0);
      entry.lines = [...old.map((line, at) => this.line(line, at, true, null)), ...entry.lines.filter((line) => !line.ghost)];
      this.tell(key);
    }
  }

  line(line, at, ghost, along) {
    const plain = marksOf(line, this.how.points);
    return {
      id: ghost ? "ghost" + at : at, rank: line.rank, ghost, marks: along ? over(along, plain) : plain,
      colour: seriesColour(at), at, name: line.rank === null ? "all ranks" : "rank " + line.rank, origin: line.origin,
    };
  }

  fill(entry, found, xs) {
    const mine = found.filter((line) => line.key === entry.key);
    const along = xs && xs[0] ? marksOf(xs[0], this.how.points) : null;
    entry.lines = mine.map((line, at) => this.line(line, line.rank === null ? at : line.rank, false, along));
    entry.ranks = [...new Set(mine.flatMap((line) => line.ranks))];
    entry.unit = mine[0]?.unit || "";
    entry.superseded = mine.reduce((sum, line) => sum + line.superseded, 0);
    entry.attempt = Math.max(0, ...(entry.attempts || []));
    entry.loading = false;
    entry.error = null;
    this.catchUp(entry);
  }

  // The stream began: what was read before it did may lack points that nobody told of.
  begin() {
    if ([...this.entries.values()].some((entry) => !entry.stale)) this.refresh();
  }

  // Take the points of a live event: { rank, attempt, points: { key: { step, time, value } } }.
  // Returns the keys that no chart knows yet.
  take({ rank, attempt, points }) {
    const unknown = [];
    for (const [key, columns] of Object.entries(points || {})) {
      const entry = this.entries.get(key);
      if (!entry) unknown.push(key);
      else if (attempt > entry.attempt && entry.attempt > 0) { entry.attempt = attempt; entry.stale = true; this.want(key); }
      else if (entry.loading) (entry.pending ??= []).push([rank, columns]);
      else if (!entry.stale) this.append(entry, rank, columns);
    }
    return unknown;
  }

  // What came while a line was being read is added behind its end; before that the line has it already.
  catchUp(entry) {
    const waiting = entry.pending || [];
    entry.pending = null;
    for (const [rank, columns] of waiting) {
      const line = this.lineOf(entry, rank);
      if (line) this.append(entry, rank, columns, line.marks.length ? line.marks.last.at(-1) : -Infinity);
    }
  }

  append(entry, rank, columns, behind = -Infinity) {
    if (this.how.x === "metric") return;
    const line = this.lineOf(entry, rank);
    if (!line) return;
    const { x, from, to } = this.how;
    for (let i = 0; i < columns.value.length; i++) {
      const at = x === "step" ? columns.step[i] : x === "time" ? columns.time[i] : columns.time[i] - line.origin;
      if (at === null || columns.value[i] === null || (from !== null && at < from) || (to !== null && at > to) || at <= behind) continue;
      line.marks.add(at, real(columns.value[i]), rank);
    }
    this.tell(entry.key, true);
  }

  lineOf(entry, rank) {
    const own = entry.lines.filter((line) => !line.ghost);
    if (this.how.ranks === "all") {
      if (!own.length) return null;
      return own[0];
    }
    if (typeof this.how.ranks === "number") return rank === this.how.ranks ? own[0] : null;
    let found = own.find((line) => line.rank === rank);
    if (!found && own.length) {
      found = { ...own[0], id: rank, rank, marks: new Marks(this.how.points), colour: seriesColour(rank), at: rank, name: "rank " + rank };
      entry.lines = [...entry.lines, found];
    }
    return found;
  }

  tell(key, live = false) {
    for (const told of this.entry(key).watchers) told(live);
  }

  // Colours are of the theme; lines take them anew.
  recolour() {
    for (const entry of this.entries.values()) {
      for (const line of entry.lines) line.colour = seriesColour(line.at);
      this.tell(entry.key);
    }
  }
}
