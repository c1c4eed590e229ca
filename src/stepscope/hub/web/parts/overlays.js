// A panel that slides in beside the page: it takes the focus, returns it, and closes with Escape.
import { html, useEffect, useId, useRef, useState } from "../h.js";
import { IconButton } from "./controls.js";

export function Drawer({ title, label, onClose, children, actions }) {
  const ref = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    ref.current?.focus({ preventScroll: true });
    return () => {
      if (before?.isConnected) before.focus({ preventScroll: true });
    };
  }, []);
  useEffect(() => {
    const pressed = (event) => {
      if (
        event.key === "Escape" &&
        !event.defaultPrevented &&
        !event.target.closest?.("input, select, textarea, .menu-place")
      )
        onClose();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [onClose]);
  return html`<aside class="drawer" role="dialog" aria-label=${label} tabindex="-1" ref=${ref}>
    <header class="drawer-head"><h2>${title}</h2><div class="drawer-actions">${actions}
      <${IconButton} icon="close" label="Close" shortcut="Esc" onClick=${onClose} /></div></header>
    <div class="drawer-body" tabindex="0">${children}</div>
  </aside>`;
}

// A modal dialog: it takes the focus, returns it, and closes with Escape unless it is busy.
export function Dialog({ title, busy = false, onClose, children }) {
  const ref = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const name = useId();
  useEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    ref.current?.showModal();
    return () => {
      if (before?.isConnected) before.focus({ preventScroll: true });
    };
  }, []);
  return html`<dialog class="dialog" ref=${ref} aria-labelledby=${name} onCancel=${(event) => {
    event.preventDefault();
    if (!busy) onClose();
  }}><h2 id=${name}>${title}</h2>${children}</dialog>`;
}

// A question before something that cannot be taken back: a modal dialog with its answer and `keep`, which leaves things as they are.
// `act` does it and may fail, which the dialog shows; `onClose` is called when it is over.
export function Confirm({ title, action, keep = "Cancel", act, onClose, children }) {
  const [state, setState] = useState({ busy: false, error: "" });
  const confirmed = async (event) => {
    event.preventDefault();
    setState({ busy: true, error: "" });
    try {
      await act();
      onClose();
    } catch (error) {
      setState({ busy: false, error: error.message });
    }
  };
  return html`<${Dialog} title=${title} busy=${state.busy} onClose=${onClose}>
    <form onSubmit=${confirmed}>
      <div class="dialog-text">${children}</div>
      ${state.error && html`<p class="bad-text" role="alert">${state.error}</p>`}
      <div class="dialog-actions">
        <button type="button" class="button" autofocus disabled=${state.busy} onClick=${onClose}>${keep}</button>
        <button class="button danger" disabled=${state.busy}>${state.busy ? "Working…" : action}</button>
      </div>
    </form>
  <//>`;
}

// The question before an editor closes with something written in it; the answer that keeps it has the focus.
export function ConfirmDiscard({ onDiscard, onClose }) {
  return html`<${Confirm} title="Discard unsaved changes?" action="Discard" keep="Keep editing" act=${onDiscard}
      onClose=${onClose}><p>What you wrote here is not saved.</p><//>`;
}

// What was just done, with a way to take it back: a line at the foot of the page that leaves by itself.
const SHOWN_MS = 10000;
/** @typedef {{ text: string, undo?: () => unknown, label: string, bad: boolean }} Toast */
/** @type {(next: Toast) => void} */
let show = () => {};

/**
 * Report what was done; `undo` reverts it, and `label` is what its button says. With `bad` it is an error.
 * @param {string} text
 * @param {{ undo?: () => unknown, label?: string, bad?: boolean }} [options]
 */
export const toast = (text, { undo, label = "Undo", bad = false } = {}) => show({ text, undo, label, bad });

export function Toasts() {
  const [shown, setShown] = useState(/** @type {Toast | null} */ (null));
  const timer = useRef(0);
  const held = (ms) => {
    clearTimeout(timer.current);
    if (ms) timer.current = setTimeout(() => setShown(null), ms);
  };
  useEffect(() => {
    show = (next) => {
      setShown(next);
      held(SHOWN_MS);
    };
    return () => {
      show = () => {};
      clearTimeout(timer.current);
    };
  }, []);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${
      shown &&
      html`<p class=${"toast" + (shown.bad ? " bad" : "")} onPointerEnter=${() => held(0)}
          onPointerLeave=${() => held(SHOWN_MS)}>
      <span>${shown.text}</span>
      ${
        shown.undo &&
        html`<button type="button" class="toast-undo" onClick=${() => {
          setShown(null);
          shown.undo?.();
        }}>${shown.label}</button>`
      }
      <${IconButton} icon="close" label="Dismiss" onClick=${() => setShown(null)} /></p>`
    }
  </div>`;
}

// Change something and report it; what goes wrong is reported too.
export async function act(what, message, reload) {
  try {
    await what();
    toast(message);
    reload();
  } catch (error) {
    toast(error.message, { bad: true });
  }
}
