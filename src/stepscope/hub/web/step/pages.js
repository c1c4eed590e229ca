// The answer about a step, read in pages of ranks: the odd and the slow ones first, the others as one scrolls to them.
import { html, useEffect, useRef } from "../h.js";
import { get, runPath } from "../api.js";
import { inSight } from "../charts/painter.js";
import { useFetch } from "../use.js";
import { count } from "../parts/format.js";

const PAGE = 16;

// As useFetch, and with `more`, which reads the next page of ranks.
export function useStep(run, step, attempt, rank) {
  const ask = (offset, signal) => get(runPath(run, "steps", step), { attempt, rank, limit: PAGE, offset }, signal);
  const place = [run, step, attempt, rank].join("\n"),
    held = useRef({ place, until: 0 });
  const fetched = useFetch(
    (signal) => readPages((offset) => ask(offset, signal), held.current.place === place ? held.current.until : 0),
    [run, step, attempt, rank],
  );
  const asked = useRef(/** @type {unknown} */ (null));
  const more = () => {
    const now = fetched.value;
    if (!now || now.all_ranks.next === null || asked.current === now) return;
    asked.current = now;
    ask(now.all_ranks.next).then(
      (page) => {
        held.current = { place, until: page.all_ranks.next ?? Infinity };
        fetched.set((latest) => (latest === now ? joined(now, page) : latest));
      },
      () => {
        asked.current = null;
      },
    );
  };
  return { ...fetched, more };
}

/** The first pages of ranks, up to those that were read before: an answer that is read again loses none of them. */
export async function readPages(ask, until) {
  let found = await ask(0);
  while (found.all_ranks.next !== null && found.all_ranks.next < until)
    found = joined(found, await ask(found.all_ranks.next));
  return found;
}

function joined(first, page) {
  const keys = new Map(first.metrics.map((each) => [each.key, each]));
  for (const { key, unit, values } of page.metrics)
    keys.set(key, { key, unit, values: [...(keys.get(key)?.values ?? []), ...values] });
  const both = (name) => [...first[name], ...page[name]];
  return {
    ...first,
    metrics: [...keys.values()],
    ranks: both("ranks"),
    open_spans: both("open_spans"),
    logs: both("logs"),
    system: both("system"),
    all_ranks: page.all_ranks,
  };
}

// What stands below the ranks that were read: once it is in sight, more are read.
export function MoreRanks({ step, more }) {
  const ref = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (!ref.current) return undefined;
    return inSight(ref.current, (visible) => visible && more());
  }, [step]);
  const left = step.all_ranks.count - step.ranks.length;
  if (step.all_ranks.next === null || left < 1) return null;
  return html`<p class="note" ref=${ref}>
    <button type="button" class="button" onClick=${more}>Show more of ${count(left)} ranks</button></p>`;
}
