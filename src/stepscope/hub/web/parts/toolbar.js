// Controls: a bar of them, choices side by side, switches, search fields, menus, marks of a run's state.
import { html, useEffect, useId, useLayoutEffect, useRef, useState } from "../h.js";
import { Icon } from "./icons.js";

export function Toolbar({ label, children }) {
  return html`<div class="toolbar" role="group" aria-label=${label}>${children}</div>`;
}

// One of a few: options are [value, text, title?].
export function Choice({ label, value, options, onChange }) {
  const name = useId();
  return html`<fieldset class="choice"><legend class="sr">${label}</legend>
    ${options.map(
      ([each, text, title]) => html`<label key=${each} title=${title} class=${each === value ? "on" : ""}>
      <input type="radio" class="sr" name=${name} checked=${each === value} onChange=${() => onChange(each)} />
        ${text}</label>`,
    )}
  </fieldset>`;
}

export function Switch({ label, on, onChange, title }) {
  return html`<button type="button" class=${"switch" + (on ? " on" : "")} aria-pressed=${on ? "true" : "false"}
      title=${title}
    onClick=${() => onChange(!on)}>${label}</button>`;
}

export function Search({ label, value, onChange, placeholder, shortcut = "/" }) {
  const ref = useRef(null);
  useEffect(() => {
    const pressed = (event) => {
      if (event.key !== shortcut || event.target.closest?.("input, textarea, select")) return;
      event.preventDefault();
      ref.current?.focus();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [shortcut]);
  return html`<span class="search"><${Icon} name="search" />
    <input ref=${ref} type="search" aria-label=${label} placeholder=${placeholder || label} value=${value}
        spellcheck=${false}
      autocomplete="off" onInput=${(event) => onChange(event.target.value)}
      onKeyDown=${(event) => {
        if (event.key === "Escape") {
          onChange("");
          event.target.blur();
        }
      }} /></span>`;
}

export function Select({ label, value, options, onChange, hidden = true }) {
  return html`<label class="select"><span class=${hidden ? "sr" : "select-label"}>${label}</span>
    <select value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${options.map(
        ([each, text]) => html`<option key=${each} value=${each} selected=${each === value}>${text}</option>`,
      )}
    </select></label>`;
}

export function IconButton({ icon, label, onClick, on, disabled, shortcut, ...rest }) {
  return html`<button type="button" class=${"icon-button" + (on ? " on" : "")} aria-label=${label} disabled=${disabled}
    aria-pressed=${on === undefined ? undefined : String(!!on)} title=${shortcut ? `${label} (${shortcut})` : label}
    onClick=${onClick} ...${rest}><${Icon} name=${icon} /></button>`;
}

const MARGIN = 8;

// A button that opens a panel within the window; Escape and a click elsewhere close it. children is the panel, or a function of `close`.
export function Menu({ label, icon, children, align = "left", title }) {
  const [open, setOpen] = useState(false);
  const ref = useRef(null),
    button = useRef(null);
  useEffect(() => {
    if (!open) return undefined;
    const outside = (event) => {
      if (!ref.current.contains(event.target)) setOpen(false);
    };
    addEventListener("pointerdown", outside);
    ref.current.querySelector(".menu input, .menu button, .menu a")?.focus();
    return () => removeEventListener("pointerdown", outside);
  }, [open]);
  useLayoutEffect(() => {
    if (!open) return;
    const panel = ref.current.querySelector(".menu"),
      { left, right } = panel.getBoundingClientRect();
    const out = left < MARGIN ? MARGIN - left : Math.min(0, document.documentElement.clientWidth - MARGIN - right);
    if (out) panel.style.translate = `${out}px`;
  }, [open]);
  const close = () => {
    setOpen(false);
    button.current?.focus();
  };
  const keys = (event) => {
    if (event.key === "Escape" && open) {
      event.stopPropagation();
      close();
    }
  };
  return html`<span class="menu-place" ref=${ref} onKeyDown=${keys}>
    <button type="button" class="button" ref=${button} aria-expanded=${String(open)} title=${title}
        onClick=${() => setOpen(!open)}>
      ${icon && html`<${Icon} name=${icon} />`}${label}</button>
    ${open && html`<div class=${"menu " + align}>${typeof children === "function" ? children(close) : children}</div>`}
  </span>`;
}

// The state of a run, by sign and word, never by colour alone; while its journals are imported, how far that is.
const SIGNS = { importing: "⇣", running: "●", finished: "✓", failed: "✕", crashed: "✕", stalled: "◐", preempted: "⏏" };
export function Status({ run: { status, importing } }) {
  const done = importing ? ` ${Math.floor((100 * importing.bytes) / importing.total)} %` : "";
  return html`<span class=${"status " + status}><span class="sign" aria-hidden="true">${SIGNS[status] || "○"}</span>
    ${status}${done}</span>`;
}

export function Severity({ severity }) {
  const word = severity === "UNSPECIFIED" ? "" : (severity || "").toUpperCase();
  const kind = /^(ERROR|FATAL)/.test(word) ? "bad" : /^WARN/.test(word) ? "warn" : "calm";
  return html`<span class=${"severity " + kind}>${word || "–"}</span>`;
}
