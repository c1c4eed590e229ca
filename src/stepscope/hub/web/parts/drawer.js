// A panel that slides in beside the page: it takes the focus, gives it back, and leaves with Escape.
import { html, useEffect, useRef } from "../h.js";
import { IconButton } from "./toolbar.js";

export function Drawer({ title, label, onClose, children, actions }) {
  const ref = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    ref.current.focus({ preventScroll: true });
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
