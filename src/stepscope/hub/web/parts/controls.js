// Controls: a bar of them, choices side by side, switches, search fields, menus, marks of a run's state.
import { html, useEffect, useId, useLayoutEffect, useRef, useState } from "../h.js";
import { count } from "./format.js";
import { seriesColour, seriesDash } from "../theme.js";

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

const LONG = 400; // characters

// A text; of a long one the beginning, until all of it is asked for.
export function Folded({ text }) {
  const [open, setOpen] = useState(false);
  if (text.length <= LONG) return html`<span>${text}</span>`;
  return html`<span>${open ? text : text.slice(0, LONG / 2) + "… "}</span>
    <button type="button" class="link" aria-expanded=${open ? "true" : "false"} onClick=${() => setOpen(!open)}>
      ${open ? "Show less" : `Show all ${count(text.length)} characters`}</button>`;
}

// A short piece of a line in its style: the colour, and the dashes where it has some.
export function Swatch({ at }) {
  const tone = seriesColour(at),
    stops = seriesDash(at).reduce(
      ({ from, parts }, length, i) => ({
        from: from + length / 2,
        parts: [...parts, `${i % 2 ? "transparent" : tone} ${from}px ${from + length / 2}px`],
      }),
      { from: 0, parts: /** @type {string[]} */ ([]) },
    ).parts;
  const background = stops.length ? `repeating-linear-gradient(90deg, ${stops.join(", ")})` : tone;
  return html`<i class="swatch" style=${{ background }}></i>`;
}

export function Search({ label, value, onChange, placeholder, shortcut = "/" }) {
  const ref = useRef(/** @type {HTMLInputElement | null} */ (null));
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

// Thousands of options are there only while the list is used, and otherwise the chosen one alone.
const MANY_OPTIONS = 500;

export function Select({ label, value, options, onChange, hidden = true }) {
  const [used, setUsed] = useState(false);
  const shown = used || options.length < MANY_OPTIONS ? options : options.filter(([each]) => each === value);
  const use = () => setUsed(true);
  return html`<label class="select" onPointerEnter=${use} onPointerDown=${use} onFocusIn=${use}>
    <span class=${hidden ? "sr" : "select-label"}>${label}</span>
    <select value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${shown.map(
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
export function Menu({ label, icon, children, align = "left", title, bare = false, opened = false }) {
  const [open, setOpen] = useState(opened);
  const ref = useRef(/** @type {HTMLElement | null} */ (null));
  const button = useRef(/** @type {HTMLButtonElement | null} */ (null));
  useEffect(() => {
    if (!open) return undefined;
    const outside = (event) => {
      if (!ref.current?.contains(event.target)) setOpen(false);
    };
    addEventListener("pointerdown", outside);
    /** @type {HTMLElement | null | undefined} */ (
      ref.current?.querySelector(".menu input, .menu button, .menu a")
    )?.focus();
    return () => removeEventListener("pointerdown", outside);
  }, [open]);
  useLayoutEffect(() => {
    if (!open) return;
    const panel = /** @type {HTMLElement | null | undefined} */ (ref.current?.querySelector(".menu"));
    if (!panel) return;
    const { left, right } = panel.getBoundingClientRect();
    const out = left < MARGIN ? MARGIN - left : Math.min(0, rightEdge(panel) - MARGIN - right);
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
    <button type="button" class=${bare ? "icon-button" : "button"} ref=${button} aria-expanded=${String(open)}
        title=${bare ? label : title} aria-label=${bare ? label : undefined} onClick=${() => setOpen(!open)}>
      ${icon && html`<${Icon} name=${icon} />`}${bare ? null : label}</button>
    ${open && html`<div class=${"menu " + align}>${typeof children === "function" ? children(close) : children}</div>`}
  </span>`;
}

// How far to the right an element is seen: to the edge of the window, or of a part that scrolls, before its scroll bar.
function rightEdge(element) {
  let edge = document.documentElement.clientWidth;
  for (let part = element.parentElement; part; part = part.parentElement) {
    if (getComputedStyle(part).overflowX === "visible") continue;
    edge = Math.min(edge, part.getBoundingClientRect().left + part.clientLeft + part.clientWidth);
  }
  return edge;
}

// A menu behind an icon, whose label is its name.
export function IconMenu({ icon, label, children, align }) {
  return html`<${Menu} icon=${icon} label=${label} align=${align} bare>${children}<//>`;
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

// Line icons, drawn on a grid of 16; they take the colour of the text around them.
const PATHS = {
  close: "M4 4l8 8M12 4l-8 8",
  left: "M10 3L5 8l5 5",
  right: "M6 3l5 5-5 5",
  down: "M3 6l5 5 5-5",
  up: "M3 10l5-5 5 5",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM11 11l3.5 3.5",
  pin: "M6 2h4l-.5 5 2.5 2.5H4L6.5 7zM8 9.5V14",
  wide: "M9.5 2.5h4v4M6.5 13.5h-4v-4M13.5 2.5L9 7M2.5 13.5L7 9",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  moon: "M13.5 9.5A6 6 0 1 1 6.5 2.5a5 5 0 0 0 7 7z",
  auto: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 2v12M8 5h5M8 8h6M8 11h5",
  menu: "M2 4h12M2 8h12M2 12h12",
  columns: "M2.5 2.5h11v11h-11zM6.5 2.5v11M10 2.5v11",
  flag: "M4 14V2h8l-2 3 2 3H4",
  skip: "M3 3l5 5-5 5M9 3l5 5-5 5",
  back: "M13 3L8 8l5 5M7 3L2 8l5 5",
  check: "M3 8.5l3.5 3.5L13 4.5",
  copy: "M5.5 5.5h8v8h-8zM2.5 10.5v-8h8",
  plus: "M8 3v10M3 8h10",
  pencil: "M3 13l.7-3L11 2.700l2.300 2.300L6 12.300zM9.500 4.200l2.300 2.300",
  more: "M3 8h.01M8 8h.01M13 8h.01",
  grip: "M6 3.500h.01M10 3.500h.01M6 8h.01M10 8h.01M6 12.500h.01M10 12.500h.01",
  eye: "M1.500 8S4 3.500 8 3.500 14.500 8 14.500 8 12 12.500 8 12.500 1.500 8 1.500 8zM8 10a2 2 0 1 0 0-4 2 2 0 0 0 0 4z",
  closed: "M2 6.500S4 10 8 10s6-3.500 6-3.500M4 9.300L2.800 11M8 10v2M12 9.300l1.200 1.700",
  star: "M8 1.800l1.900 4 4.300.500-3.200 3 .9 4.300L8 11.500l-3.900 2.100.9-4.300-3.200-3 4.300-.5z",
  warn: "M8 2l6.5 11.5h-13zM8 6.5v3M8 11.700v.1",
};

export function Icon({ name, size = 14 }) {
  return html`<svg class="icon" width=${size} height=${size} viewBox="0 0 16 16" aria-hidden="true"
      focusable="false"><path d=${PATHS[name]} /></svg>`;
}

// Copy a text, and tell whether that worked. Browsers have a clipboard for scripts only where the page is on this machine or comes by
// https; elsewhere the element that shows the text is selected and copied as by hand, and stays selected if that fails too.
async function copied(text, element) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    if (element) getSelection()?.selectAllChildren(element);
    return document.execCommand("copy");
  }
}

// Code to paste, with a button that copies it.
export function Code({ text, label = "Copy" }) {
  const [done, setDone] = useState(false);
  const shown = useRef(/** @type {HTMLElement | null} */ (null));
  const copy = async () => {
    if (!(await copied(text, shown.current))) return;
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<div class="code"><pre tabindex="0" ref=${shown}>${text}</pre>
    <button type="button" class="button code-copy" onClick=${copy}><${Icon} name=${done ? "check" : "copy"} />
      ${done ? "Copied" : label}</button>
    </div>`;
}
