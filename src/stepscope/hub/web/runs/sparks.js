// Small lines for the rows in sight, asked for together when the table stands still, and again as runs go on.
import { useEffect, useMemo, useRef, useState } from "../h.js";
import { get } from "../api.js";

const STILL = 120,
  FRESH = 5000;

// Returns [Map of run to spark, see(rows)].
export function useSparks(metrics) {
  const [sparks, setSparks] = useState(() => new Map());
  const cache = useRef(new Map()),
    timer = useRef(0),
    rows = useRef([]),
    busy = useRef(false);
  const key = metrics?.[0] || null;

  async function ask() {
    if (busy.current || key === null) return;
    const now = Date.now();
    const wanted = rows.current
      .filter((run) => {
        const old = cache.current.get(run.id);
        return !old || (run.status === "running" && now - old.at > FRESH && old.step !== run.step);
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
    timer.current = setTimeout(ask, STILL);
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
  return [sparks, see];
}
