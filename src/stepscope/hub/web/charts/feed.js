// The lines of one run for all charts that show it: asked for together, kept up to date by the live stream.
import { get, runPath } from "../api.js";
import { seriesColour } from "../theme.js";
import { real } from "../parts/format.js";
import { coarse, EXACT, Marks, marksOf, over, stepsWithin } from "./marks.js";

const AT_ONCE = 3; // lines in one question
const AGAIN_MS = 3000; // between two readings of lines over another metric, which the stream cannot continue
const MOST_GHOSTS = 4; // earlier attempts that are drawn, the newest

// how: { x: "step"|"time"|"relative"|"metric", xKey, ranks: "all"|"each"|number, from, to, points, ghosts }
export class Feed {
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
    this.loads = new Set(); // what is being asked: { keys, control }
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
    return () => {
      entry.watchers.delete(told);
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

  ask() {
    const keys = [...this.waiting].filter((key) => !this.entry(key).loading);
    this.waiting.clear();
    for (const key of keys) Object.assign(this.entry(key), { loading: true, stale: false });
    const along = keys.length && this.how.x === "metric" ? this.along({}) : null;
    for (let i = 0; i < keys.length; i += AT_ONCE) this.load(keys.slice(i, i + AT_ONCE), along);
  }

  async load(keys, asked) {
    const { how, turn } = this,
      began = performance.now(),
      load = { keys, control: new AbortController() };
    this.loads.add(load);
    try {
      const along = await asked;
      const found = await this.lines(keys, { ...this.ranks(), ...along?.steps }, load.control.signal);
      if (turn !== this.turn) return;
      for (const key of keys) this.fill(this.entry(key), found, along);
      this.took = performance.now() - began;
      this.tips(keys);
      if (how.ghosts) this.haunt(keys, found);
    } catch (error) {
      if (turn !== this.turn || error.name === "AbortError") return;
      for (const key of keys) Object.assign(this.entry(key), { loading: false, error });
    } finally {
      this.loads.delete(load);
    }
    for (const key of keys) this.tell(key);
  }

  async lines(keys, params, signal = this.control.signal) {
    const { how } = this,
      paired = how.x === "metric";
    const window = paired ? {} : { from: how.from, to: how.to };
    const align = how.ranks === "all" && (how.x === "time" || how.x === "relative");
    const asked = {
      key: keys,
      align: align || null,
      x: paired ? "step" : how.x,
      points: paired ? EXACT : how.points,
      ...window,
      ...params,
    };
    return (await get(runPath(this.run, "series"), asked, signal)).series;
  }

  ranks() {
    const { ranks } = this.how;
    return ranks === "each" ? { by_rank: true } : typeof ranks === "number" ? { rank: ranks } : {};
  }

  // The metric that runs along x, and within a zoom the steps at which it was there, read as closely as they can be.
  async along(params) {
    const { xKey, from, to } = this.how,
      /** @type {[number, number] | null} */
      window = from === null && to === null ? null : [from, to];
    const read = async (steps) => {
      const line = (await this.lines([xKey], { ...params, ...steps }))[0];
      return { marks: marksOf(line, EXACT), ranks: line.ranks.length };
    };
    const whole = await read({}),
      steps = window && stepsWithin(whole.marks, window);
    if (!steps) return { ...whole, window, steps: {} };
    const range = { from: steps[0], to: steps[1] };
    return { ...(coarse(whole.marks) ? await read(range) : whole), window, steps: range };
  }

  // Of a stretch that several ranks made the hub tells one rank's last value; what all had there is in the points of that x.
  async tips(keys) {
    if (this.how.x === "metric") return;
    const { turn } = this,
      ends = new Map(),
      pad = this.how.x === "step" ? 0 : 2e-6;
    for (const key of keys) {
      const line = this.entry(key).lines.find((each) => each.several && !each.aligned && !each.ghost);
      if (line?.marks.length && line.marks.lastValue === null)
        ends.set(line.marks.tail.x, [...(ends.get(line.marks.tail.x) || []), { key, line }]);
    }
    for (const [x, those] of ends) {
      const found = await this.lines(
        those.map(({ key }) => key),
        { from: x - pad, to: x + pad, points: EXACT },
      ).catch(() => []);
      if (turn !== this.turn) return;
      those.forEach(({ key, line }) => {
        const end = found.find((each) => each.key === key && each.scope === line.scope);
        if (line.marks.tail.x !== x || !end?.total) return;
        const tip = marksOf(end, EXACT);
        Object.assign(line.marks, { tail: tip.tail, lastValue: tip.lastValue });
        this.tell(key);
      });
    }
  }

  // What earlier attempts had where a later one began again, drawn grey behind once it is there.
  async haunt(keys, found) {
    const drawn = (key) => this.entry(key).lines.some((line) => line.ghost);
    const again = keys.filter((key) => !drawn(key) && found.some((line) => line.key === key && line.superseded > 0));
    if (!again.length) return;
    const { turn, how } = this;
    const attempts = [...new Set(again.flatMap((key) => this.entry(key).attempts || []))]
      .sort((a, b) => a - b)
      .slice(0, -1)
      .slice(-MOST_GHOSTS);
    const read = async (attempts) => {
      const along = how.x === "metric" ? await this.along({ attempts }) : null;
      return (await this.lines(again, { attempts, ...this.ranks(), ...along?.steps })).map((line) => ({ line, along }));
    };
    const all = await Promise.all(attempts.map(read)).catch(() => []);
    if (turn !== this.turn) return;
    for (const key of again) {
      const entry = this.entry(key),
        old = all.flat().filter(({ line }) => line.key === key && line.total > 0);
      entry.lines = [
        ...old.map(({ line, along }, at) => this.line(line, at, true, along)),
        ...entry.lines.filter((line) => !line.ghost),
      ];
      this.tell(key);
    }
  }

  line(line, at, ghost, along, scoped = false) {
    const plain = marksOf(line, along ? EXACT : this.how.points);
    const marks = along
      ? over(along.marks, plain, { ranks: along.ranks, mine: line.ranks.length, window: along.window })
      : plain;
    return {
      id: ghost ? "ghost" + at : at,
      rank: line.rank,
      scope: line.scope,
      ghost,
      marks,
      several: line.rank === null && line.ranks.length > 1,
      aligned: line.aligned,
      places: new Map(),
      colour: seriesColour(at),
      at,
      name: (line.rank === null ? "all ranks" : "rank " + line.rank) + (scoped ? ` · ${line.scope || "no scope"}` : ""),
      origin: line.origin,
    };
  }

  fill(entry, found, along) {
    const mine = found.filter((line) => line.key === entry.key);
    // Read again and asked the same, what an earlier attempt had is still right.
    const ghosts = entry.turn === this.turn ? entry.lines.filter((line) => line.ghost) : [];
    entry.turn = this.turn;
    entry.scoped = new Set(mine.map((line) => line.scope)).size > 1;
    const place = (line, at) => (line.rank === null || entry.scoped ? at : line.rank);
    entry.lines = [...ghosts, ...mine.map((line, at) => this.line(line, place(line, at), false, along, entry.scoped))];
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
    if (this.how.x === "metric" && Object.keys(points || {}).length) this.renew();
    for (const [key, columns] of Object.entries(points || {})) {
      const entry = this.entries.get(key);
      if (!entry) unknown.push(key);
      else if (attempt > entry.attempt && entry.attempt > 0) this.beginAttempt(entry, attempt);
      else if (entry.loading) (entry.pending ??= []).push([rank, columns]);
      else if (!entry.stale) this.append(entry, rank, columns);
    }
    return unknown;
  }

  beginAttempt(entry, attempt) {
    Object.assign(entry, { attempt, attempts: [...(entry.attempts || []), attempt], stale: true, turn: null });
    this.want(entry.key);
  }

  // Which steps have both metrics only the hub can tell, so it is asked now and then; what takes long is asked seldom.
  renew() {
    this.renewal ||= setTimeout(
      () => {
        this.renewal = 0;
        for (const entry of this.entries.values()) if (entry.watchers.size) this.want(entry.key);
      },
      Math.max(AGAIN_MS, 5 * this.took),
    );
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
    if (entry.scoped) return this.renew(); // the stream does not say of which scope a point is
    const line = this.lineOf(entry, rank);
    if (!line) return;
    const { x, from, to } = this.how;
    if (!entry.ranks.includes(rank)) {
      entry.ranks.push(rank);
      line.several = line.rank === null && entry.ranks.length > 1;
    }
    for (let i = 0; i < columns.value.length; i++) {
      const at = x === "step" ? columns.step[i] : x === "time" ? columns.time[i] : columns.time[i] - line.origin;
      if (
        at === null ||
        columns.value[i] === null ||
        (from !== null && at < from) ||
        (to !== null && at > to) ||
        at <= behind
      )
        continue;
      line.marks.add(line.aligned ? placed(line, columns.step[i], at) : at, real(columns.value[i]), rank);
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
      found = {
        ...own[0],
        id: rank,
        rank,
        marks: new Marks(this.how.points),
        colour: seriesColour(rank),
        at: rank,
        name: "rank " + rank,
      };
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

const PLACES = 256; // steps whose place in time is remembered

// Over time, all ranks of a step have the place of the first of them; readings without a step that of their round.
function placed({ marks, places }, step, at) {
  if (step === null) {
    const n = marks.length,
      round = n > 1 ? (marks.x[n - 1] - marks.x[0]) / (n - 1) : 0;
    return n && at >= marks.x[n - 1] && at - marks.x[n - 1] < round / 2 ? marks.x[n - 1] : at;
  }
  if (!places.has(step)) places.set(step, at);
  if (places.size > PLACES) places.delete(places.keys().next().value);
  return places.get(step);
}
