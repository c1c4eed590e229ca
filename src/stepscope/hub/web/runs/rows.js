// The rows of the table: read page by page, then kept up to date from the live stream, run by run.
import { useEffect, useMemo, useRef, useState } from "../h.js";
import { get } from "../api.js";
import { useLive } from "../use.js";
import { quoted } from "./completion.js";

const FIRST = 200, PAGE = 2000, MOST = 20000;

// Returns { rows, matched, total, error, loading, state, again, see(rows) }.
export function useRuns({ filter, sort, metrics }) {
  const [found, setFound] = useState({ rows: [], matched: 0, total: null, error: null, loading: true });
  const [turn, setTurn] = useState(0);
  const known = useRef(new Map()), moved = useRef(new Map()), seen = useRef(new Set()), rates = useRef(new Map());
  const due = useRef(new Set()), strangers = useRef(new Map());
  const metricText = metrics === null ? null : metrics.join("\n");

  useEffect(() => {
    if (metricText === null) return undefined;
    const control = new AbortController();
    setFound((old) => ({ ...old, loading: true }));
    load({ filter, sort, metric: metrics }, control.signal, (part) => {
      known.current = new Map(part.rows.map((run) => [run.id, run]));
      setFound({ ...part, error: null });
    }).catch((error) => {
      if (error.name !== "AbortError") setFound((old) => ({ ...old, error, loading: false }));
    });
    return () => control.abort();
  }, [filter, sort, metricText, turn]);

  const state = useLive({}, {
    runs: ({ runs }) => {
      for (const run of runs) {
        moved.current.set(run.id, run);
        pace(rates.current, run);
      }
    },
    gap: () => setTurn((n) => n + 1),
  }, []);

  // Twice a second what moved is patched in; what the stream does not tell (values, state) is asked for, for rows in sight.
  useEffect(() => {
    let beats = 0;
    const timer = setInterval(() => {
      if (document.hidden) return;
      const news = [...moved.current.values()];
      moved.current.clear();
      if (news.length) patch(news, known.current, rates.current, setFound);
      // A run that is not here is asked for once: the filter may not want it.
      for (const { id } of news) if (!known.current.has(id) && !strangers.current.has(id)) strangers.current.set(id, true);
      if (beats % 4 === 0 && [...strangers.current.values()].some(Boolean)) {
        for (const id of strangers.current.keys()) strangers.current.set(id, false);
        setTurn((n) => n + 1);
      }
      const stale = news.filter((run) => seen.current.has(run.id)).map((run) => run.id);
      for (const id of stale) due.current.add(id);
      if (++beats % 4 === 0) renew(due.current, seen.current, known.current, metrics || [], rates.current, setFound);
    }, 500);
    return () => clearInterval(timer);
  }, [metricText]);

  const see = useMemo(() => (rows) => { seen.current = new Set(rows.map((run) => run.id)); }, []);
  return { ...found, state, see, again: () => setTurn((n) => n + 1) };
}

async function load(params, signal, told) {
  let rows = [], cursor = null;
  do {
    const answer = await get("runs", { ...params, limit: cursor ? PAGE : FIRST, cursor }, signal);
    rows = rows.concat(answer.runs);
    cursor = answer.next;
    told({ rows, matched: answer.matched, total: answer.total, loading: cursor !== null });
  } while (cursor && rows.length < MOST);
}

// Steps a second, lately: over the last ten seconds of the run's own clock.
function pace(rates, { id, step, seen }) {
  if (step === null) return;
  const past = rates.get(id) || [];
  past.push([seen, step]);
  while (past.length > 2 && seen - past[0][0] > 10) past.shift();
  rates.set(id, past);
}

function lately(rates, id) {
  const past = rates.get(id);
  if (!past || past.length < 2) return undefined;
  const [first, last] = [past[0], past.at(-1)];
  return last[0] > first[0] ? Math.max(0, (last[1] - first[1]) / (last[0] - first[0])) : undefined;
}

function patch(news, known, rates, setFound) {
  const changed = new Map();
  for (const { id, step, seen } of news) {
    const run = known.get(id);
    if (!run) continue;
    changed.set(id, { ...run, step: Math.max(run.step ?? 0, step ?? 0), seen: Math.max(run.seen || 0, seen), lately: lately(rates, id) ?? run.lately,
      duration: run.started ? Math.max(run.duration || 0, seen - run.started) : run.duration });
  }
  replace(changed, known, setFound);
}

function replace(changed, known, setFound) {
  if (!changed.size) return;
  for (const [id, run] of changed) known.set(id, run);
  setFound((old) => ({ ...old, rows: old.rows.map((run) => changed.get(run.id) || run) }));
}

async function renew(due, seen, known, metrics, rates, setFound) {
  // Runs in sight that run may also have stopped without a word.
  for (const id of seen) if (known.get(id)?.status === "running") due.add(id);
  const ids = [...due].filter((id) => seen.has(id)).slice(0, 100);
  due.clear();
  if (!ids.length) return;
  const filter = `id in (${ids.map(quoted).join(", ")})`;
  const answer = await get("runs", { filter, metric: metrics, limit: ids.length }).catch(() => null);
  if (answer) replace(new Map(answer.runs.map((run) => [run.id, { ...run, lately: lately(rates, run.id) }])), known, setFound);
}
