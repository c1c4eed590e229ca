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

// Who is near the screen: one observer for all, with a margin so that scrolling finds things ready.
const watched = new Map();
/** @type {IntersectionObserver | null} */
let observer = null;

export function inSight(element, notify) {
  observer ??= new IntersectionObserver(
    (entries) => {
      for (const entry of entries) watched.get(entry.target)?.(entry.isIntersecting);
    },
    { rootMargin: "300px 0px" },
  );
  watched.set(element, notify);
  observer.observe(element);
  return () => {
    watched.delete(element);
    observer?.unobserve(element);
  };
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
