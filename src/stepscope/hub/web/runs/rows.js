// The rows of the table: read page by page, then kept up to date from the live stream, run by run. Which rows
// there are, and in which order, only the hub knows, so they are fetched again when a change may affect that.
import { useCallback, useEffect, useMemo, useRef, useState } from "../h.js";
import { get, quoted } from "../api.js";
import { useLive, useRetry } from "../use.js";

const FIRST = 200,
  PAGE = 2000,
  MOST = 20000;
const TURN = 2000,
  QUIET = 10000; // milliseconds between questions while runs move, and while they may stop without a word

/**
 * @typedef {{ rows: any[], matched: number, total: number | null, archived: number, leftOut: Record<string, string>, groups: any[],
 *   error: any, loading: boolean }} Found
 */

// Returns { rows, matched, total, error, loading, state, reload, see(rows) }.
export function useRuns({ filter, sort, metrics, columns, archived, group = "" }) {
  const [found, setFound] = useState(
    /** @type {Found} */ ({
      rows: [],
      matched: 0,
      total: null,
      archived: 0,
      leftOut: {},
      groups: [],
      error: null,
      loading: true,
    }),
  );
  const [turn, setTurn] = useState(0);
  const known = useRef(new Map()),
    moved = useRef(new Map()),
    seen = useRef(new Set()),
    rates = useRef(new Map());
  const due = useRef(new Set()),
    last = useRef({ question: "", busy: true, at: 0, took: 0, stale: false });
  const metricText = metrics === null ? null : [...metrics, "", ...columns].join("\n");
  const reload = useCallback(() => setTurn((n) => n + 1), []);
  useRetry(found.error, reload);

  useEffect(() => {
    if (metricText === null) return undefined;
    const control = new AbortController(),
      question = JSON.stringify([filter, sort, metricText, archived, group]),
      anew = question !== last.current.question;
    last.current = { question, busy: true, at: performance.now(), took: 0, stale: false };
    const mine = last.current;
    if (anew) setFound((old) => ({ ...old, loading: true }));
    load({ filter, sort, metric: metrics, column: columns, archived, group }, control.signal, (part) => {
      // Refetched rows replace the old ones when all have arrived, so that nothing jumps.
      if (!anew && part.loading && part.rows.length < known.current.size) return;
      const rows = part.rows.map((run) => latest(run, known.current.get(run.id), rates.current));
      known.current = new Map(rows.map((run) => [run.id, run]));
      setFound({ ...part, rows, error: null });
    })
      .catch((error) => {
        if (error.name !== "AbortError") setFound((old) => ({ ...old, error, loading: false }));
      })
      .finally(() => {
        mine.busy = false;
        mine.took = performance.now() - mine.at;
      });
    return () => control.abort();
  }, [filter, sort, metricText, archived, group, turn]);

  const state = useLive(
    {},
    {
      runs: ({ runs }) => {
        for (const run of runs) {
          moved.current.set(run.id, run);
          pace(rates.current, run);
        }
      },
      gap: reload,
    },
    [],
  );

  // Twice a second what moved is patched in; what the stream lacks (values, state) is fetched for visible rows.
  const refused = found.error !== null && found.error.status !== 0;
  useEffect(() => {
    let beats = 0;
    const steady = !filter && !group && /^-?(created|started)$/.test(sort),
      fates = /\bstat(us|e)\b/.test(filter + " " + sort);
    const timer = setInterval(() => {
      if (document.hidden) return;
      const news = [...moved.current.values()],
        now = last.current,
        passed = performance.now() - now.at;
      moved.current.clear();
      if (news.length) patch(news, known.current, rates.current, setFound);
      if (news.some(({ id }) => !steady || !known.current.has(id)) || (fates && passed > QUIET)) now.stale = true;
      // A long table takes its time to read; the hub has better things to do than to read it all the time.
      if (now.stale && !now.busy && !refused && passed > Math.max(TURN, 5 * now.took)) reload();
      const stale = news.filter((run) => seen.current.has(run.id)).map((run) => run.id);
      for (const id of stale) due.current.add(id);
      if (++beats % 4 === 0) {
        renew(
          due.current,
          seen.current,
          known,
          { metric: metrics || [], column: columns },
          rates.current,
          setFound,
        ).then((ended) => {
          if (ended && !steady) last.current.stale = true;
        });
      }
    }, 500);
    return () => clearInterval(timer);
  }, [metricText, filter, sort, group, refused]);

  const see = useMemo(
    () => (rows) => {
      seen.current = new Set(rows.map((run) => run.id));
    },
    [],
  );
  return { ...found, state, see, reload };
}

async function load(params, signal, notify) {
  let rows = [],
    leftOut = {},
    groups = null,
    cursor = null;
  do {
    const answer = await get("runs", { ...params, limit: cursor ? PAGE : FIRST, cursor }, signal);
    rows = rows.concat(answer.runs);
    leftOut = { ...leftOut, ...answer.left_out };
    groups ??= answer.groups; // of all runs, with the first page
    cursor = answer.next;
    const { matched, total, archived } = answer;
    notify({ rows, matched, total, archived, leftOut, groups, loading: cursor !== null });
  } while (cursor && rows.length < MOST);
}

// Recent steps per second: over the last ten seconds of the run's own clock.
function pace(rates, { id, step, seen }) {
  if (step === null) return;
  const past = rates.get(id) || [];
  past.push([seen, step]);
  while (past.length > 2 && seen - past[0][0] > 10) past.shift();
  rates.set(id, past);
}

function recentRate(rates, id) {
  const past = rates.get(id);
  if (!past || past.length < 2) return undefined;
  const [first, last] = [past[0], past.at(-1)];
  return last[0] > first[0] ? Math.max(0, (last[1] - first[1]) / (last[0] - first[0])) : undefined;
}

// A run as the hub sent it, updated from the stream.
function latest(run, before, rates) {
  const ahead = before && before.seen > run.seen && before.attempts === run.attempts;
  return {
    ...run,
    recentRate: recentRate(rates, run.id),
    ...(ahead ? { step: before.step, seen: before.seen, duration: before.duration } : {}),
  };
}

function patch(news, known, rates, setFound) {
  const changed = new Map();
  for (const { id, step, seen } of news) {
    const run = known.get(id);
    if (!run) continue;
    changed.set(id, {
      ...run,
      step: Math.max(run.step ?? 0, step ?? 0),
      seen: Math.max(run.seen || 0, seen),
      recentRate: recentRate(rates, id) ?? run.recentRate,
      duration: run.started ? Math.max(run.duration || 0, seen - run.started) : run.duration,
    });
  }
  replace(changed, known, setFound);
}

function replace(changed, known, setFound) {
  if (!changed.size) return;
  for (const [id, run] of changed) known.set(id, run);
  setFound((old) => ({ ...old, rows: old.rows.map((run) => changed.get(run.id) || run) }));
}

// Read some runs; returns whether the state of one has changed.
async function renew(due, seen, known, values, rates, setFound) {
  // Runs in sight that run may have stopped without saying so, and those that are imported come to an end.
  for (const id of seen) if (["running", "importing"].includes(known.current.get(id)?.status)) due.add(id);
  const ids = [...due].filter((id) => seen.has(id)).slice(0, 100);
  due.clear();
  if (!ids.length) return false;
  const filter = `id in (${ids.map(quoted).join(", ")})`;
  const answer = await get("runs", { filter, ...values, archived: "show", limit: ids.length }).catch(() => null);
  if (!answer) return false;
  const here = known.current,
    still = answer.runs.filter((run) => here.has(run.id));
  const other = still.some((run) => here.get(run.id).status !== run.status);
  replace(new Map(still.map((run) => [run.id, latest(run, here.get(run.id), rates)])), here, setFound);
  return other;
}
