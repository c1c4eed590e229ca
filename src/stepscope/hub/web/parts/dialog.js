// A question before something that cannot be taken back: a modal dialog with its answer and Cancel.
import { html, useEffect, useRef, useState } from "../h.js";

// `act` does it and may fail, which is said in the dialog; `onClose` is called when it is over.
export function Confirm({ title, action, act, onClose, children }) {
  const ref = useRef(null);
  const [state, setState] = useState({ busy: false, error: "" });
  useEffect(() => {
    const before = document.activeElement;
    ref.current.showModal();
    return () => {
      if (before?.isConnected) before.focus({ preventScroll: true });
    };
  }, []);
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
  return html`<dialog class="dialog" ref=${ref} aria-labelledby="dialog-title" onCancel=${(event) => {
    event.preventDefault();
    if (!state.busy) onClose();
  }}>
    <form onSubmit=${confirmed}>
      <h2 id="dialog-title">${title}</h2>
      <div class="dialog-text">${children}</div>
      ${state.error && html`<p class="bad-text" role="alert">${state.error}</p>`}
      <div class="dialog-actions">
        <button type="button" class="button" autofocus disabled=${state.busy} onClick=${onClose}>Cancel</button>
        <button class="button danger" disabled=${state.busy}>${state.busy ? "Working…" : action}</button>
      </div>
    </form>
  </dialog>`;
}
