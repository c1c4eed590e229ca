// Hooks that views share: reading the API, following it live, sizes, keys, remembered choices.
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./h.js";
import { live } from "./api.js";

const RETRY_MS = 2000,
  EMPTY_MS = 3000,
  RELOAD_MS = 1000;

// `read(signal)` is called anew when `deps` change, by `reload()`, and by itself while the hub does not answer.
// The last value stays visible meanwhile.
/**
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} read
 * @param {unknown[]} deps
 * @returns {{ value: T | undefined, error: any, loading: boolean, reload: () => void, set: (change: any) => void }}
 */
export function useFetch(read, deps) {
  /** @type {[{ value: T | undefined, error: any, loading: boolean }, (next: any) => void]} */
  const [state, setState] = useState({ value: undefined, error: null, loading: true });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const control = new AbortController();
    let gone = false;
    setState((old) => ({ ...old, loading: true }));
    read(control.signal).then(
      (value) => {
        if (!gone) setState({ value, error: null, loading: false });
      },
      (error) => {
        if (!gone && error.name !== "AbortError") setState((old) => ({ ...old, error, loading: false }));
      },
    );
    return () => {
      gone = true;
      control.abort();
    };
  }, [...deps, turn]);
  const reload = useCallback(() => setTurn((n) => n + 1), []);
  const set = useCallback(
    (change) =>
      setState((old) => ({
        ...old,
        value: typeof change === "function" ? change(old.value) : change,
      })),
    [],
  );
  useRetry(state.error, reload);
  return { ...state, reload, set };
}

// Whether a media query holds, followed while it may change.
export function useMedia(query) {
  const media = useMemo(() => matchMedia(query), [query]);
  const [holds, setHolds] = useState(media.matches);
  useEffect(() => {
    const changed = () => setHolds(media.matches);
    changed();
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, [media]);
  return holds;
}

// Retry while the hub does not answer: `error` is that of the last request, `reload` repeats it.
export function useRetry(error, reload) {
  useEffect(() => {
    if (error?.status !== 0) return undefined;
    const timer = setTimeout(reload, RETRY_MS);
    return () => clearTimeout(timer);
  }, [error]);
}

// Fetch again every second while the value of useFetch is not complete.
export function usePollUntilComplete(fetched) {
  const complete = fetched.value?.complete !== false,
    latest = useRef(fetched);
  latest.current = fetched;
  useEffect(() => {
    if (complete) return undefined;
    const timer = setInterval(() => {
      if (!latest.current.loading) latest.current.reload();
    }, RELOAD_MS);
    return () => clearInterval(timer);
  }, [complete]);
}

// Fetch again every few seconds while the value of useFetch is empty, so that the first item appears by itself.
export function usePollWhileEmpty(fetched, isEmpty) {
  const waiting = fetched.value !== undefined && isEmpty(fetched.value);
  useEffect(() => {
    if (!waiting) return undefined;
    const timer = setInterval(() => {
      if (!document.hidden) fetched.reload();
    }, EMPTY_MS);
    return () => clearInterval(timer);
  }, [waiting]);
  return fetched;
}

// Watch the live stream while shown; the newest `on` is the one that is called. Returns "open", "lost" or "".
export function useLive(params, on, deps) {
  const latest = useRef(on);
  latest.current = on;
  const [state, setState] = useState("");
  useEffect(() => {
    if (params === null) return undefined;
    const through = { state: setState };
    for (const name of ["hello", "records", "runs", "gap", "beat"])
      through[name] = (data) => latest.current[name]?.(data);
    return live(params, through);
  }, deps);
  return state;
}

/**
 * The size of an element: const [ref, { width, height }] = useSize().
 * @returns {[import("preact").RefObject<any>, { width: number, height: number }]}
 */
export function useSize() {
  const ref = useRef(/** @type {HTMLElement | null} */ (null));
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return undefined;
    const measure = () =>
      setSize((old) => {
        const width = element.clientWidth,
          height = element.clientHeight;
        return old.width === width && old.height === height ? old : { width, height };
      });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [ref, size];
}

// Call `act(event)` for a key pressed anywhere but in a field.
export function useKey(key, act, deps = []) {
  useEffect(() => {
    const pressed = (event) => {
      if (event.key !== key || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target.closest?.("input, textarea, select, [contenteditable]") && key !== "Escape") return;
      act(event);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, deps);
}

/**
 * A choice remembered in this browser.
 * @template T
 * @param {string} name
 * @param {T} fallback
 * @returns {[T, (next: T | ((old: T) => T)) => void]}
 */
export function useSavedChoice(name, fallback) {
  const [value, setValue] = useState(() => savedChoice(name, fallback));
  const set = useCallback(
    (next) =>
      setValue((old) => {
        const made = next instanceof Function ? next(old) : next;
        saveChoice(name, made);
        return made;
      }),
    [name],
  );
  return [value, set];
}

export function savedChoice(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem("stepscope." + name) ?? "null") ?? fallback;
  } catch {
    return fallback;
  }
}

export function saveChoice(name, value) {
  try {
    localStorage.setItem("stepscope." + name, JSON.stringify(value));
  } catch {
    /* private windows have none */
  }
}

/**
 * The value as it was when it last stood still for `ms`.
 * @template T
 * @param {T} value
 */
export function useDebounced(value, ms = 200) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}

// The time in seconds, renewed every `ms` while the page is visible.
export function useNow(ms = 1000) {
  const [now, setNow] = useState(Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) setNow(Date.now() / 1000);
    }, ms);
    return () => clearInterval(timer);
  }, [ms]);
  return now;
}
