// Steps a second: lately while a run goes on, else over all of it, by the steps that were made, as its goodput counts them.
import { useEffect, useMemo, useRef, useState } from "../h.js";
import { get, runPath } from "../api.js";
import { number } from "../parts/format.js";

const STILL = 150,
  FRESH = 15000;

export function rate(run, whole) {
  const found = run.status === "running" && run.lately !== undefined ? run.lately : whole;
  return found === null || found === undefined ? "–" : number(found, 3);
}

// The rates over the whole run of the rows in sight, asked for one after the other while the table stands still.
// Returns [Map of run to rate, see(rows)].
export function useRates() {
  const [rates, setRates] = useState(() => new Map());
  const known = useRef(new Map()),
    rows = useRef([]),
    timer = useRef(0),
    busy = useRef(false);

  function next() {
    const now = Date.now();
    return rows.current.find((run) => {
      const old = known.current.get(run.id);
      if (run.step === null || (run.status === "running" && run.lately !== undefined)) return false;
      return !old || ((old.step !== run.step || old.status !== run.status) && now - old.at > FRESH);
    });
  }

  async function ask() {
    if (busy.current) return;
    busy.current = true;
    for (let run = next(); run; run = next()) {
      const { step, status } = run;
      const found = await get(runPath(run.id, "goodput")).catch(() => null);
      known.current.set(run.id, { step, status, at: Date.now(), rate: found?.steps_per_second });
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
      timer.current = setTimeout(ask, STILL);
    },
    [],
  );
  return [rates, see];
}
