// What of a workspace is in its address, and what this browser remembers for addresses that do not have it.
import { useCallback, useMemo } from "../h.js";
import { change, useRoute } from "../router.js";
import { savedChoice, useSavedChoice } from "../use.js";

export const USUAL = ["metrics"]; // the values beside a run: the usual metrics
const NONE = "-"; // stands for an empty list, which an address cannot hold

/**
 * The lists that are remembered: the parameter, the name under which this browser has it, and what it is else.
 * @type {Record<string, { name: (scope: string) => string, fallback: string[] }>}
 */
const LISTS = {
  pin: { name: (scope) => "pins." + scope, fallback: [] },
  wide: { name: (scope) => "wide." + scope, fallback: [] },
  fold: { name: () => "closed.workspace", fallback: ["system", "stepscope"] },
  expr: { name: (scope) => "expressions." + scope, fallback: [] },
  column: { name: () => "columns.workspace", fallback: USUAL },
};

const NOT_OF_A_VIEW = ["view", "from", "to"]; // a window belongs to what was looked at just now

/**
 * A list of the address; where it has none, as it was last in this browser. A change is in both.
 * @param {"pin" | "wide" | "fold" | "expr" | "column"} param
 * @param {string} scope
 * @returns {[string[], (next: string[]) => void]}
 */
export function useList(param, scope) {
  const { name, fallback } = LISTS[param];
  const { query } = useRoute();
  const [remembered, remember] = useSavedChoice(name(scope), fallback);
  const text = JSON.stringify(query.getAll(param));
  const value = useMemo(() => listed(JSON.parse(text), remembered), [text, remembered]);
  const set = useCallback(
    (next) => {
      remember(next);
      change({ [param]: next.length ? next : [NONE] });
    },
    [param, remember],
  );
  return [value, set];
}

const listed = (given, remembered) => (given.length ? given.filter((each) => each !== NONE) : remembered);

/**
 * All that a view keeps, as the query of an address: also what only this browser remembers.
 * @param {URLSearchParams} query
 * @param {string} scope
 */
export function viewQuery(query, scope) {
  const made = new URLSearchParams();
  for (const [key, value] of query) if (!NOT_OF_A_VIEW.includes(key) && !(key in LISTS)) made.append(key, value);
  for (const [param, { name, fallback }] of Object.entries(LISTS)) {
    const list = listed(query.getAll(param), savedChoice(name(scope), fallback));
    for (const each of list.length ? list : [NONE]) made.append(param, each);
  }
  made.sort();
  return made.toString();
}
