// Sparklines for the visible rows, fetched together when scrolling pauses, and again while runs continue.
import { html, useEffect, useMemo, useRef, useState } from "../h.js";
import { get } from "../api.js";
import { number } from "../parts/format.js";

const STILL = 120,
  FRESH = 5000;

/** @returns {[Map<string, any> | null, (rows: any[]) => void]} The spark of each run, or null when there are no metrics,
 * and what to call with the rows in sight. */
export function useSparks(metrics) {
  const [sparks, setSparks] = useState(() => new Map());
  const cache = useRef(new Map()),
    timer = useRef(0),
    rows = useRef(/** @type {any[]} */ ([])),
    busy = useRef(false);
  const key = metrics?.[0] || null;

  async function load() {
    if (busy.current || key === null) return;
    const now = Date.now();
    const wanted = rows.current
      .filter((run) => {
        const old = cache.current.get(run.id);
        return !old || (now - old.at > FRESH && old.step !== run.step);
      })
      .slice(0, 100);
    if (!wanted.length) return;
    busy.current = true;
    const answer = await get("sparks", { run: wanted.map((run) => run.id), metric: metrics }).catch(() => null);
    busy.current = false;
    if (!answer) return;
    const found = new Map(answer.sparks.map((spark) => [spark.run, spark]));
    for (const run of wanted) cache.current.set(run.id, { at: now, step: run.step, spark: found.get(run.id) });
    setSparks(new Map([...cache.current].map(([id, entry]) => [id, entry.spark])));
    schedule();
  }

  function schedule() {
    clearTimeout(timer.current);
    timer.current = setTimeout(load, STILL);
  }

  useEffect(() => {
    cache.current = new Map();
    schedule();
    return () => clearTimeout(timer.current);
  }, [key]);
  const latest = useRef(schedule);
  latest.current = schedule;
  const see = useMemo(
    () => (shown) => {
      rows.current = shown;
      latest.current();
    },
    [],
  );
  return [metrics?.length === 0 ? null : sparks, see];
}

// A line in a cell: the extremes of each stretch, so that a spike is there too.
const WIDTH = 110,
  HEIGHT = 22;

export function Spark({ spark, waiting }) {
  if (waiting) return html`<span class="spark-wait" style=${{ width: `${WIDTH}px` }} aria-hidden="true"></span>`;
  if (!spark || !spark.x.length) return html`<span class="muted">–</span>`;
  const low = Math.min(...spark.min),
    high = Math.max(...spark.max),
    first = spark.x[0],
    span = spark.x.at(-1) - first || 1;
  const x = (i) => (1 + ((spark.x[i] - first) / span) * (WIDTH - 2)).toFixed(1);
  const y = (value) => (HEIGHT - 2 - (high > low ? (value - low) / (high - low) : 0.5) * (HEIGHT - 4)).toFixed(1);
  const middle = spark.x.map((_, i) => `${x(i)},${y((spark.min[i] + spark.max[i]) / 2)}`);
  if (middle.length === 1) middle.push(middle[0]); // drawn as a dot
  const area = [
    ...spark.x.map((_, i) => `${x(i)},${y(spark.max[i])}`),
    ...spark.x.map((_, i) => `${x(i)},${y(spark.min[i])}`).reverse(),
  ];
  return html`<svg class="spark" width=${WIDTH} height=${HEIGHT} viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img"
      aria-label=${`${spark.key}: from ${number(low, 3)} to ${number(high, 3)}`}>
    <polygon points=${area.join(" ")} /><polyline points=${middle.join(" ")} /></svg>`;
}

// Steps per second: recent while a run is running, else over the whole run, by completed steps as in its goodput.
const RATE_STILL = 150,
  RATE_FRESH = 15000,
  MAX_AT_ONCE = 100;

export function rate(run, whole) {
  const found = run.status === "running" && run.recentRate !== undefined ? run.recentRate : whole;
  return found === null || found === undefined ? "–" : number(found, 3);
}

const needsRate = (run) => run.step !== null && !(run.status === "running" && run.recentRate !== undefined);

// Whether a rate was fetched, or none is needed: one that is on its way is not "none".
export const isRateKnown = (run, isFetched) => isFetched || !needsRate(run);

// The rates over the whole run of the visible rows, fetched together while scrolling pauses.
/** @returns {[Map<string, number>, (rows: any[]) => void]} */
export function useRates() {
  const [rates, setRates] = useState(() => new Map());
  const known = useRef(new Map()),
    rows = useRef(/** @type {any[]} */ ([])),
    timer = useRef(0),
    busy = useRef(false);

  function due() {
    const now = Date.now();
    const wanted = rows.current.filter((run) => {
      const old = known.current.get(run.id);
      if (!needsRate(run)) return false;
      return !old || ((old.step !== run.step || old.status !== run.status) && now - old.at > RATE_FRESH);
    });
    return wanted.slice(0, MAX_AT_ONCE);
  }

  async function load() {
    if (busy.current) return;
    busy.current = true;
    for (let wanted = due(); wanted.length; wanted = due()) {
      const answer = await get("rates", { run: wanted.map((run) => run.id) }).catch(() => null);
      const found = new Map((answer?.rates || []).map((each) => [each.run, each.steps_per_second]));
      for (const { id, step, status } of wanted)
        known.current.set(id, { step, status, at: Date.now(), rate: found.get(id) });
      setRates(new Map([...known.current].map(([id, each]) => [id, each.rate])));
    }
    busy.current = false;
  }

  useEffect(
    () => () => {
      clearTimeout(timer.current);
      rows.current = [];
    },
    [],
  );
  const see = useMemo(
    () => (shown) => {
      rows.current = shown;
      clearTimeout(timer.current);
      timer.current = setTimeout(load, RATE_STILL);
    },
    [],
  );
  return [rates, see];
}
