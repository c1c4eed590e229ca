// Which of the series' colours a name of a span has: the same on every view, whatever else is on screen.
import { SERIES } from "../theme.js";

// The phases of a step, and the parts of a layer, are told from each other; any other name has the colour that its letters give.
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
  return sum % SERIES;
}

export const spanColour = (name) => `var(--series-${hue(name) + 1})`;
