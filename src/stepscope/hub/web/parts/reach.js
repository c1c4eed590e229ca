// Says on every view that the hub does not answer, and since when what is shown is old; it goes away by itself.
import { html, useEffect, useRef, useState } from "../h.js";
import { clock } from "./format.js";

const EVERY = 5000,
  AWAY = 1500,
  PATIENCE = 8000; // milliseconds between looks, while it is away, and for an answer

export function Reach() {
  const [since, setSince] = useState(null);
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
    <b>No connection to the hub.</b> What you see is from ${clock(since)}; the page goes on by itself when the hub is back.</p>`;
}

// Any answer will do: a hub that refuses is there.
const answers = () =>
  fetch("healthz", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) }).then(
    () => true,
    () => false,
  );
