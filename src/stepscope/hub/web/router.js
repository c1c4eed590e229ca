// The address: `#/name/part/part?key=value&key=value`. Everything a view shows is in it, so every view can be shared.
import { useEffect, useMemo, useState } from "./h.js";

/** @typedef {string | number | boolean | null | undefined} Value A parameter; null, undefined, "" and false leave it out. */

const watchers = new Set();

export function parse(hash) {
  const text = hash.replace(/^#\/?/, "");
  const [path, query = ""] = text.split(/\?(.*)/s);
  const [name = "", ...parts] = own(path.split("/").filter(Boolean).map(plain));
  return { name, parts, query: new URLSearchParams(query) };
}

// The parts of an address, also of those that MLflow's clients print: experiments/ID/runs/ID, and experiments/ID.
function own(parts) {
  if (parts[0] !== "experiments") return parts;
  return parts[2] === "runs" && parts[3] ? ["run", parts[3]] : ["runs"];
}

function plain(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * The address of a view: href("runs", "ID", { x: "step" }).
 * @param {...(string | URLSearchParams | Record<string, Value | Value[]>)} where
 */
export function href(...where) {
  const query = typeof where.at(-1) === "object" ? where.pop() : {};
  const search = queryText(query);
  return "#/" + where.map(String).map(encodeURIComponent).join("/") + (search ? "?" + search : "");
}

function queryText(query) {
  if (query instanceof URLSearchParams) return query.toString().replaceAll("%2F", "/");
  const made = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    add(made, key, value);
  }
  return made.toString().replaceAll("%2F", "/");
}

// Add a parameter, once for each value of a list.
function add(query, key, value) {
  for (const one of Array.isArray(value) ? value : [value]) {
    if (one !== null && one !== undefined && one !== "" && one !== false) query.append(key, one === true ? "1" : one);
  }
}

let here = parse(location.hash);
export const route = () => here;

export function go(address, { replace = false } = {}) {
  if (address === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  moved();
}

/**
 * Change some parameters of the present address; the rest stays.
 * @param {Record<string, Value | Value[]>} values
 */
export function change(values, { replace = true } = {}) {
  const query = new URLSearchParams(here.query);
  for (const [key, value] of Object.entries(values)) {
    query.delete(key);
    add(query, key, value);
  }
  go(href(here.name, ...here.parts, query), { replace });
}

function moved() {
  here = parse(location.hash);
  for (const watcher of [...watchers]) watcher(here);
}

addEventListener("hashchange", moved);
addEventListener("popstate", moved);

export function useRoute() {
  const [now, set] = useState(here);
  useEffect(() => {
    set(here);
    watchers.add(set);
    return () => watchers.delete(set);
  }, []);
  return now;
}

/**
 * One parameter of the address as state: const [x, setX] = useParam("x", "step").
 * @param {string} key
 * @returns {[string, (next: Value, options?: { replace?: boolean }) => void]}
 */
export function useParam(key, fallback = "") {
  const { query } = useRoute();
  const value = query.get(key) ?? fallback;
  const set = useMemo(
    () => (next, options) => change({ [key]: next === fallback ? null : next }, options),
    [key, fallback],
  );
  return [value, set];
}

/**
 * The tab of the address: one of some names, else the first of them.
 * @param {string[]} names
 * @returns {[string, (next: Value) => void]}
 */
export function useTab(names) {
  const [given, set] = useParam("tab", names[0]);
  return [names.includes(given) ? given : names[0], set];
}

/**
 * A parameter that can be there several times.
 * @param {string} key
 * @returns {[string[], (next: string[], options?: { replace?: boolean }) => void]}
 */
export function useParams(key) {
  const { query } = useRoute();
  const text = JSON.stringify(query.getAll(key));
  const values = useMemo(() => JSON.parse(text), [text]);
  const set = useMemo(() => (next, options) => change({ [key]: next }, options), [key]);
  return [values, set];
}
