// Requests about a run that is being deleted: cancelled before the DELETE is sent, repeated if the hub keeps the run.

/** @type {Set<{ run: string, control: AbortController, cancelled: boolean }>} */
const sent = new Set();
/** @type {Map<string, Promise<boolean>>} */
const outcomes = new Map(); // of deletions in progress: whether the hub kept the run
/** @type {Set<string>} */
const deleted = new Set();

// The address of a deleted run gives the hub's 404.
addEventListener("hashchange", () => {
  for (const run of deleted) if (location.hash.includes(encodeURIComponent(run))) deleted.delete(run);
});

/**
 * Delete a run by `act`.
 * @template T
 * @param {string} run
 * @param {() => Promise<T>} act
 * @returns {Promise<T>}
 */
export async function deleting(run, act) {
  const outcome = act();
  outcomes.set(
    run,
    outcome.then(
      () => false,
      () => true,
    ),
  );
  for (const each of sent) {
    if (each.run !== run) continue;
    each.cancelled = true;
    each.control.abort();
  }
  try {
    const answer = await outcome;
    deleted.add(run);
    return answer;
  } finally {
    outcomes.delete(run);
  }
}

/**
 * Fetch, as long as the run that the address is about is there; an AbortError otherwise.
 * @param {string} url
 * @param {RequestInit} [options]
 */
export async function fetchPresent(url, options = {}) {
  const run = runOf(url);
  if (run === null || options.method) return fetch(url, options);
  for (;;) {
    if (deleted.has(run) || (await outcomes.get(run)) === false) throw new DOMException("run deleted", "AbortError");
    const each = { run, control: new AbortController(), cancelled: false },
      abort = () => each.control.abort();
    if (options.signal?.aborted) abort();
    options.signal?.addEventListener("abort", abort);
    sent.add(each);
    try {
      return await fetch(url, { ...options, signal: each.control.signal });
    } catch (error) {
      if (options.signal?.aborted || !each.cancelled) throw error;
    } finally {
      sent.delete(each);
      options.signal?.removeEventListener("abort", abort);
    }
  }
}

// The one run that an address is about; null for none or several.
function runOf(url) {
  const named = /^api\/runs\/([^/?]+)/.exec(url);
  if (named) return decodeURIComponent(named[1]);
  const runs = new URLSearchParams(url.split("?")[1]).getAll("run");
  return runs.length === 1 ? runs[0] : null;
}
