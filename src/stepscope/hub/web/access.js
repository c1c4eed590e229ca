// What the token of this browser allows, which the hub says with each answer; a hub without tokens allows everything.
import { useEffect, useState } from "./h.js";

/** @type {string | null} */
let words = null; // scopes, and `project` or `run` if it is limited to one; null before the first answer
const watchers = new Set();

/**
 * Take note of the header of an answer.
 * @param {string | null} header
 */
export function noteAccess(header) {
  const next = header ?? "";
  if (next === words) return;
  words = next;
  for (const watcher of [...watchers]) watcher(next);
}

/**
 * `may(scope)` says whether something can be changed; false before the first answer, so that nothing is offered in vain.
 * `limit` is what the token is limited to: `run` for a link to a run, `project`, or nothing.
 */
export function useAccess() {
  const [known, setKnown] = useState(words);
  useEffect(() => {
    setKnown(words);
    watchers.add(setKnown);
    return () => watchers.delete(setKnown);
  }, []);
  const granted = known?.split(" ") ?? [];
  const may = (scope) => known === "" || granted.includes(scope) || granted.includes("admin");
  return {
    may,
    limit: granted.includes("run") ? "run" : granted.includes("project") ? "project" : "",
    open: known === "",
  };
}

// What is shown only to those who may use it.
export const May = ({ scope = "admin", children }) => (useAccess().may(scope) ? children : null);
