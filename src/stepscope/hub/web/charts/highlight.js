// The line that is highlighted in all charts and lists at once: that of the run under the pointer.
import { useEffect, useState } from "../h.js";

const watchers = new Set();
/** @type {string | null} */
let now = null;

export const highlighted = () => now;

/** @param {string | null} id */
export function highlight(id) {
  if (id === now) return;
  now = id;
  for (const notify of [...watchers]) notify(id);
}

/** Call `notify` when another line is highlighted; returns the function that ends it. */
export function onHighlight(notify) {
  watchers.add(notify);
  return () => watchers.delete(notify);
}

export function useHighlighted() {
  const [id, setId] = useState(now);
  useEffect(() => {
    const stop = onHighlight(setId);
    return () => {
      stop();
    };
  }, []);
  return id;
}
