// The order of cards in a grid: a grip that is dragged with mouse, pen or finger, moved with arrow keys, or used as a menu.
import { html, useEffect, useRef } from "../h.js";
import { IconMenu } from "./controls.js";
import { toast } from "./overlays.js";

const APART = 6, // pixels after which a press is a drag
  EDGE = 60,
  PACE = 14;

/**
 * A list with one item at another place.
 * @template T
 * @param {T[]} list
 * @param {number} from
 * @param {number} to
 */
export function moved(list, from, to) {
  const rest = list.filter((_, at) => at !== from);
  return [...rest.slice(0, to), list[from], ...rest.slice(to)];
}

// What is to have the focus again once it has moved.
let awaited = "";

// The grip of the card at a place among `many`; `onMove(to)` is called with its new place. The card has `data-place`.
export function Grip({ name, at, many, onMove }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null)),
    dragged = useRef(false);
  useEffect(() => {
    if (awaited !== name) return;
    awaited = "";
    place.current?.querySelector("button")?.focus();
  }, [at]);
  if (many < 2) return null;
  const move = (to) => {
    const wanted = Math.max(0, Math.min(many - 1, to));
    if (wanted === at) return;
    awaited = name;
    toast(`${name}: place ${wanted + 1} of ${many}`);
    onMove(wanted);
  };
  const keys = (event) => {
    if (event.target.getAttribute("aria-expanded") !== "false") return;
    const to = { ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1, Home: 0, End: many - 1 };
    if (!(event.key in to)) return;
    event.preventDefault();
    move(to[event.key]);
  };
  const press = (event) => {
    dragged.current = false;
    if (event.button === 0 && place.current && event.target.closest("[aria-expanded=false]"))
      drag(place.current, event, onMove, () => {
        dragged.current = true;
      });
  };
  // A drag ends with a click, which is none.
  const click = (event) => {
    if (!dragged.current) return;
    dragged.current = false;
    event.stopPropagation();
    event.preventDefault();
  };
  return html`<span class="grip" ref=${place} onPointerDown=${press} onKeyDown=${keys} onClickCapture=${click}>
    <${IconMenu} icon="grip" label=${`Move ${name}: drag it, or use the arrow keys`} align="right">${(close) =>
      [
        ["First", 0],
        ["Earlier", at - 1],
        ["Later", at + 1],
        ["Last", many - 1],
      ].map(
        ([text, to]) =>
          html`<button key=${text} type="button" class="item"
              disabled=${to === at || Number(to) < 0 || Number(to) >= many}
              onClick=${() => {
                close();
                move(Number(to));
              }}>${text}</button>`,
      )}<//></span>`;
}

/** What makes a card of a list movable: its place in what is shown, and a grip that changes the order of the list. */
export function movableAmong(key, name, shown, list, onChange) {
  const at = shown.indexOf(key);
  if (at < 0) return {};
  const move = (to) => onChange(moved(list, list.indexOf(key), list.indexOf(shown[to])));
  return { place: at, grip: html`<${Grip} name=${name} at=${at} many=${shown.length} onMove=${move} />` };
}

// Follow the pointer until it is up: the card lies before or after the one that it is over.
function drag(grip, { clientX, clientY, pointerId }, onMove, begun) {
  const card = /** @type {HTMLElement} */ (grip.closest("[data-place]")),
    from = Number(card.dataset.place);
  let over = /** @type {HTMLElement | null} */ (null),
    to = from;
  const mark = (next, side) => {
    over?.removeAttribute("data-drop");
    over = next;
    if (side) over?.setAttribute("data-drop", side);
  };
  const go = (event) => {
    if (event.pointerId !== pointerId) return;
    const x = event.clientX,
      y = event.clientY;
    if (!card.hasAttribute("data-dragged")) {
      if (Math.hypot(x - clientX, y - clientY) < APART) return;
      begun();
      card.setAttribute("data-dragged", "");
    }
    scrolled(card, y);
    const found = document
      .elementsFromPoint(x, y)
      .map((each) => /** @type {HTMLElement | null} */ (each.closest("[data-place]")))
      .find((each) => each?.parentElement === card.parentElement);
    if (!found) return;
    const at = Number(found.dataset.place),
      box = found.getBoundingClientRect(),
      isOneColumn = box.width > (card.parentElement?.clientWidth ?? 0) / 2 + APART,
      after = isOneColumn ? y > box.top + box.height / 2 : x > box.left + box.width / 2;
    to = at + Number(after) - Number(from < at + Number(after));
    mark(found === card ? null : found, after ? "after" : "before");
  };
  const end = (event) => {
    if (event.pointerId !== undefined && event.pointerId !== pointerId) return;
    if (event.type === "keydown" && event.key !== "Escape") return;
    for (const type of ["pointermove", "pointerup", "pointercancel", "keydown"])
      removeEventListener(type, type === "pointermove" ? go : end);
    const isDrag = card.hasAttribute("data-dragged");
    card.removeAttribute("data-dragged");
    mark(null, "");
    if (isDrag && event.type === "pointerup" && to !== from) onMove(to);
  };
  addEventListener("pointermove", go);
  for (const type of ["pointerup", "pointercancel", "keydown"]) addEventListener(type, end);
}

// Near the upper or lower edge of what scrolls, it scrolls.
function scrolled(card, y) {
  let box = /** @type {HTMLElement | null} */ (card.parentElement);
  while (box && !(box.scrollHeight > box.clientHeight && /auto|scroll/.test(getComputedStyle(box).overflowY)))
    box = box.parentElement;
  const scroller = box ?? document.scrollingElement,
    { top, bottom } = box?.getBoundingClientRect() ?? { top: 0, bottom: innerHeight };
  if (y < top + EDGE) scroller?.scrollBy(0, -PACE);
  else if (y > bottom - EDGE) scroller?.scrollBy(0, PACE);
}
