// Placeholders: loading, empty, failed.
import { html, useEffect, useRef, useState } from "../h.js";
import { get } from "../api.js";
import { useFetch, usePollWhileEmpty } from "../use.js";
import { bytes, clock, counted } from "./format.js";

export function Loading({ what = "Loading" }) {
  return html`<div class="state" role="status"><span class="pulse" aria-hidden="true"></span><p>${what}…</p></div>`;
}

export function Empty({ title, children }) {
  return html`<div class="state"><p class="state-title">${title}</p>
    ${children && html`<div class="state-text">${children}</div>`}</div>`;
}

// Where there is nothing yet: `children`, unless the hub still reads journals, as after its start; then how much is left.
// `reload` asks once more for what may have been read meanwhile.
export function NoneYet({ reload, children }) {
  const health = useFetch((signal) => get("health", {}, signal), []);
  const folder = health.value?.folder,
    known = folder || health.error;
  usePollWhileEmpty(health, (value) => value.folder.reading);
  useEffect(() => {
    if (known) reload();
  }, [!known, folder?.unread_bytes]);
  if (!known) return html`<${Loading} />`;
  if (!folder?.reading) return children;
  return html`<div class="state" role="status"><span class="pulse" aria-hidden="true"></span>
    <p class="state-title">The hub is reading journals</p>
    <div class="state-text">${
      folder.unread_bytes > 0 ? `${bytes(folder.unread_bytes)} in ${counted(folder.writers, "journal")} are left. ` : ""
    }What it has read appears here by itself.</div></div>`;
}

// An error with what can be done about it; `reload` tries once more.
export function Failure({ error, reload }) {
  const lost = error.status === 0;
  return html`<div class="state failed" role="alert">
    <p class="state-title">${lost ? "The hub does not answer" : "Request failed"}</p>
    <div class="state-text">
      ${lost ? "It may have been stopped. Start it with stepscope hub; this page reconnects by itself." : error.message}
    </div>
    ${reload && html`<button class="button" onClick=${reload}>Try again</button>`}
  </div>`;
}

// Loading, failed or loaded: the states of useFetch; children is a function of the value.
export function Fetched({ fetched, what, children }) {
  if (fetched.value !== undefined) return children(fetched.value);
  if (fetched.error) return html`<${Failure} error=${fetched.error} reload=${fetched.reload} />`;
  return html`<${Loading} what=${what} />`;
}

// Says on every view that the hub does not answer, and since when what is shown is old; it goes away by itself.
const EVERY = 5000,
  AWAY = 1500,
  PATIENCE = 8000; // milliseconds between looks, while it is unavailable, and for an answer

export function Reach() {
  const [since, setSince] = useState(/** @type {number | null} */ (null));
  const last = useRef(Date.now() / 1000);
  useEffect(() => {
    let timer = 0,
      ended = false,
      asking = false;
    const look = async () => {
      clearTimeout(timer);
      if (asking || ended) return;
      asking = true;
      const there = document.hidden || (await answers());
      asking = false;
      if (ended) return;
      if (there && !document.hidden) {
        last.current = Date.now() / 1000;
        setSince(null);
      } else if (!there) setSince(last.current);
      timer = setTimeout(look, there ? EVERY : AWAY);
    };
    timer = setTimeout(look, EVERY);
    addEventListener("stepscope:lost", look);
    document.addEventListener("visibilitychange", look);
    return () => {
      ended = true;
      clearTimeout(timer);
      removeEventListener("stepscope:lost", look);
      document.removeEventListener("visibilitychange", look);
    };
  }, []);
  if (since === null) return null;
  return html`<p class="reach" role="alert">
    <b>No connection to the hub.</b> Showing data from ${clock(since)}; reconnecting.</p>`;
}

// Any response will do: a hub that refuses is up.
const answers = () =>
  fetch("healthz", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) }).then(
    () => true,
    () => false,
  );

// Says on every view that answers lack shards of the store, until the hub reaches all of them again.
export function PartialAnswers() {
  const [missing, setMissing] = useState("");
  useEffect(() => {
    const note = (event) => setMissing(event.detail);
    addEventListener("stepscope:partial", note);
    return () => removeEventListener("stepscope:partial", note);
  }, []);
  useEffect(() => {
    if (!missing) return undefined;
    const look = () =>
      get("health").then(
        (health) => health.cluster?.missing_shards.length || setMissing(""),
        () => {}, // Reach says so
      );
    const timer = setInterval(look, EVERY);
    return () => clearInterval(timer);
  }, [missing]);
  if (!missing) return null;
  return html`<p class="reach" role="alert"><b>Results are missing ${missing}.</b> Runs stored there are not shown until it is back.</p>`;
}
