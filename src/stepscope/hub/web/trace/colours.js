// Which of the series' colours a name of a span has: the same on every view, whatever else is on screen.
import { colour } from "../theme.js";

const HUES = 8; // text is written on spans, so they have the first colours only

// Phases of a step and parts of a layer have distinct colours; any other name gets its colour by a hash.
const PHASES = new Map(
  Object.entries({
    step: 0,
    forward: 1,
    backward: 2,
    optimizer_step: 3,
    optimizer: 3,
    data_load: 4,
    evaluate: 7,
    "checkpoint.save": 6,
    "checkpoint.load": 6,
    forward_backward: 1,
    all_reduce: 5,
    allreduce: 5,
    sample: 1,
    reward: 2,
    train: 3,
    sync: 5,
    attention: 7,
    mlp: 6,
  }),
);

// Names that differ in their figures only have the same colour, as have `train.forward` and `forward`.
export function hue(name) {
  const kin = name.replace(/\d+/g, ""),
    phase = PHASES.get(kin.replace(/^(train|rl)\./, ""));
  if (phase !== undefined) return phase;
  let sum = 7;
  for (let at = 0; at < kin.length; at++) sum = (sum * 31 + kin.charCodeAt(at)) >>> 0;
  return sum % HUES;
}

export const spanColour = (name) => `var(--series-${hue(name) + 1})`;

// Drawing on canvases: sharp on every screen, in the colours of the theme.
export function prepare(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

// The colours of the theme at once; asking the style for each span would be slow.
export function palette() {
  const of = Object.fromEntries(
    [
      "ink",
      "ink-2",
      "muted",
      "panel",
      "line",
      "line-strong",
      "grid",
      "bad",
      "bad-soft",
      "accent",
      "sunken",
      "hover",
      "ghost",
    ].map((name) => [name, colour("--" + name)]),
  );
  of.series = Array.from({ length: HUES }, (_, at) => colour(`--series-${at + 1}`));
  return of;
}

export function fitted(text, width) {
  if (width < 14) return "";
  const most = Math.floor(width / 5.6);
  return text.length <= most ? text : most < 4 ? "" : text.slice(0, most - 1) + "…";
}
