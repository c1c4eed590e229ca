// The draw queue: charts that changed wait in it. A frame draws as many as its time allows after user
// input, and one for streamed data: compositing a canvas costs the browser more than drawing on it.
const BUDGET = 5; // milliseconds of a frame
const REST = 250; // milliseconds between two drawings of one chart while data streams

const waiting = new Map();
let frame = 0,
  timer = 0;

// Ask for a drawing soon; `now` means the next frame (someone is moving the mouse), else streaming's pace.
export function repaint(plot, now = false) {
  waiting.set(plot, now || waiting.get(plot) === true);
  if (!frame) {
    clearTimeout(timer);
    frame = requestAnimationFrame(paint);
  }
}

export function forget(plot) {
  waiting.delete(plot);
}

function paint(begin) {
  frame = 0;
  const started = performance.now();
  let later = Infinity;
  for (const [plot, now] of waiting) {
    const rest = now ? 0 : REST - (begin - plot.paintedAt);
    if (rest > 0) {
      later = Math.min(later, rest);
      continue;
    }
    waiting.delete(plot);
    plot.paintedAt = begin;
    plot.paint();
    if (!now || performance.now() - started > BUDGET) {
      later = 0;
      break;
    }
  }
  if (!waiting.size) return;
  if (later === 0) frame = requestAnimationFrame(paint);
  else
    timer = setTimeout(() => {
      if (!frame) frame = requestAnimationFrame(paint);
    }, later);
}

// Who is near the screen: one observer for all, with a margin so that scrolling finds things ready. What comes near is let in a
// few at a frame, and while the page is flung past not at all: what has left again by then cost nothing.
const LET_IN = 3; // of a frame
const REST_FRAMES = 6; // after the last scroll by half a window or more
const watched = /** @type {Map<Element, (near: boolean) => void>} */ (new Map());
const entering = /** @type {Set<Element>} */ (new Set());
const tops = new WeakMap();
/** @type {IntersectionObserver | null} */
let observer = null;
let admission = 0,
  flung = 0; // frames that the rest still takes

/**
 * Call `notify` when an element comes near the screen and when it leaves; returns the function that ends it.
 * @param {Element | null} element
 * @param {(near: boolean) => void} notify
 */
export function inSight(element, notify) {
  if (!element) return () => {};
  const seen = (observer ??= observed());
  watched.set(element, notify);
  seen.observe(element);
  return () => {
    watched.delete(element);
    entering.delete(element);
    seen.unobserve(element);
  };
}

function observed() {
  addEventListener("scroll", noteFling, { capture: true, passive: true });
  // The page scrolls in parts of itself, whose margin is `scrollMargin`.
  const how = /** @type {IntersectionObserverInit} */ ({ rootMargin: "300px 0px", scrollMargin: "300px 0px" });
  return new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) entering.add(target);
      else if (!entering.delete(target)) watched.get(target)?.(false);
    }
    if (entering.size) admission ||= requestAnimationFrame(letIn);
  }, how);
}

function letIn() {
  admission = 0;
  let left = isFlung() ? 0 : LET_IN;
  for (const element of entering) {
    if (left-- <= 0) break;
    entering.delete(element);
    watched.get(element)?.(true);
  }
  if (entering.size) admission = requestAnimationFrame(letIn);
}

/** Whether the page is being flung past: it scrolled by half a window or more a few frames ago. */
export const isFlung = () => flung > 0;

function noteFling({ target }) {
  const top = target.scrollTop ?? document.scrollingElement?.scrollTop ?? 0;
  if (Math.abs(top - (tops.get(target) ?? top)) >= innerHeight / 2) {
    if (!flung) requestAnimationFrame(rest);
    flung = REST_FRAMES;
  }
  tops.set(target, top);
}

function rest() {
  flung -= 1;
  if (flung) requestAnimationFrame(rest);
}

// The crosshair that the charts of a group share: where one of them points, all of them are read.
const groups = new Map();

// Take part in a group; returns the function that leaves it.
export function join(group, plot) {
  if (!group) return () => {};
  if (!groups.has(group)) groups.set(group, new Set());
  groups.get(group).add(plot);
  return () => groups.get(group).delete(plot);
}

// Let the other charts of the group read at x; null takes the crosshair away.
export function point(group, plot, x, line) {
  for (const other of groups.get(group) || []) if (other !== plot) other.follow(x, line);
}
