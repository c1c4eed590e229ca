// Who draws when: charts that changed wait in a queue. A frame draws as many as it has time for where someone waits for
// them, and one where data streams: to put a canvas on the screen costs the browser more than drawing on it costs us.
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
