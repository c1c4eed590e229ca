// The JSON API: requests with errors that can be shown, and the live stream.
import { noteAccess } from "./access.js";
import { fetchPresent } from "./deleting.js";
import { readExactly } from "./parts/exact.js";

const HIDDEN = 30000; // milliseconds after which a hidden page lets go of its stream
const COLUMNS = /^api\/(runs\/[^/]+\/(series|quantiles)|spans\/lanes|sparks|series)\b/; // measured, and many: nobody wrote them

class ApiError extends Error {
  constructor(message, status, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/**
 * The address of a question; lists repeat their parameter, null and undefined are left out.
 * @param {string} path
 * @param {Record<string, any>} [params]
 */
export function address(path, params = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") query.append(key, one);
    }
  }
  const search = query.toString();
  return "api/" + path + (search ? "?" + search : "");
}

/**
 * A value as the filter language of runs writes it.
 * @param {unknown} value
 */
export const quoted = (value) => (/^[\w.+-]+$/.test(String(value)) ? String(value) : JSON.stringify(String(value)));

/**
 * The path of a run: an id may hold anything but is one part of the path.
 * @param {string} id
 * @param {...(string | number)} rest
 */
export const runPath = (id, ...rest) => ["runs", encodeURIComponent(id), ...rest].join("/");

/**
 * Ask the JSON API.
 * @param {string} path
 * @param {Record<string, any>} [params]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export const get = (path, params, signal) => fetchJson(address(path, params), { signal });

// A request that early.js already sent is not sent again: its response is used once.
function fetchOnce(url, options) {
  const early = options?.method ? undefined : globalThis.early?.get(url);
  globalThis.early?.delete(url);
  return early ?? fetchPresent(url, options);
}

/**
 * Send JSON to the API.
 * @param {string} path
 * @param {unknown} body
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export const post = (path, body, signal) =>
  fetchJson(address(path), {
    method: "POST",
    signal,
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });

/**
 * Fetch an address of the API; what goes wrong is an ApiError.
 * @param {string} url
 * @param {RequestInit} [options]
 * @returns {Promise<any>}
 */
export async function fetchJson(url, options) {
  let response;
  try {
    response = await fetchOnce(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    dispatchEvent(new CustomEvent("stepscope:lost"));
    throw new ApiError("The hub does not answer.", 0, "unreachable");
  }
  const missing = response.headers.get("X-Stepscope-Partial");
  if (missing) dispatchEvent(new CustomEvent("stepscope:partial", { detail: missing }));
  if (response.ok && !url.startsWith("api/session")) noteAccess(response.headers.get("X-Stepscope-Access"));
  if (response.ok) return COLUMNS.test(url) ? response.json() : readExactly(await response.text());
  const problem = await response.json().then(
    (body) => body.error,
    () => null,
  );
  if (response.status === 401) dispatchEvent(new CustomEvent("stepscope:token"));
  throw new ApiError(
    problem?.message || response.statusText || `status ${response.status}`,
    response.status,
    problem?.code || "",
  );
}

/**
 * Watch what is being stored: `on` maps the names of events (records, runs, gap, hello, beat) to functions of their data.
 * `on.state` is problem "open" and "lost". Comes back by itself, with its cursor. Returns the function that ends it.
 * A page that nobody looks at lets go of its stream, since browsers allow six connections to a hub over all tabs.
 * @param {Record<string, any>} params
 * @param {Record<string, (data: any) => void>} on
 * @returns {() => void}
 */
export function live(params, on) {
  /** @type {EventSource | null} */
  let source = null;
  /** @type {string | null} */
  let cursor = null;
  let ended = false,
    timer = 0,
    wait = 1000;
  const names = ["hello", "records", "runs", "gap", "beat"];

  function open() {
    clearTimeout(timer);
    if (ended || source) return;
    const opened = new EventSource(address("live", { ...params, cursor }));
    source = opened;
    opened.onopen = () => {
      wait = 1000;
      on.state?.("open");
    };
    // The browser would come back with the cursor of this address; we come back with the latest.
    opened.onerror = () => {
      on.state?.("lost");
      dispatchEvent(new CustomEvent("stepscope:lost"));
      reconnect();
    };
    for (const name of names) {
      opened.addEventListener(name, (event) => {
        if (event.lastEventId) cursor = event.lastEventId;
        const data = event.data.includes('"attrs":') ? readExactly(event.data) : JSON.parse(event.data);
        if (name === "hello") cursor ??= data.cursor;
        on[name]?.(data);
      });
    }
  }

  function close() {
    clearTimeout(timer);
    source?.close();
    source = null;
  }

  function reconnect() {
    close();
    timer = setTimeout(open, wait);
    wait = Math.min(wait * 2, 15000);
  }

  function seen() {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(close, HIDDEN);
    else open();
  }

  document.addEventListener("visibilitychange", seen);
  open();
  return () => {
    ended = true;
    document.removeEventListener("visibilitychange", seen);
    close();
  };
}
