// What was just done, with a way to take it back: a line at the foot of the page that leaves by itself.
import { html, useEffect, useRef, useState } from "../h.js";
import { IconButton } from "./toolbar.js";

const SHOWN_MS = 10000;
let show = () => {};

// Say what was done; `undo` takes it back, and `label` is what its button says. With `bad` it is what went wrong.
export const toast = (text, { undo, label = "Undo", bad = false } = {}) => show({ text, undo, label, bad });

export function Toasts() {
  const [said, setSaid] = useState(null);
  const timer = useRef(0);
  const held = (ms) => {
    clearTimeout(timer.current);
    if (ms) timer.current = setTimeout(() => setSaid(null), ms);
  };
  useEffect(() => {
    show = (next) => {
      setSaid(next);
      held(SHOWN_MS);
    };
    return () => {
      show = () => {};
      clearTimeout(timer.current);
    };
  }, []);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${
      said &&
      html`<p class=${"toast" + (said.bad ? " bad" : "")} onPointerEnter=${() => held(0)}
          onPointerLeave=${() => held(SHOWN_MS)}>
      <span>${said.text}</span>
      ${
        said.undo &&
        html`<button type="button" class="toast-undo" onClick=${() => {
          setSaid(null);
          said.undo();
        }}>${said.label}</button>`
      }
      <${IconButton} icon="close" label="Dismiss" onClick=${() => setSaid(null)} /></p>`
    }
  </div>`;
}
