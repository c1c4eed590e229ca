// Light, dark, or the system's theme; charts read colours here and are notified when they change.
import { useEffect, useState } from "./h.js";
import { saveChoice, savedChoice } from "./use.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
const watchers = new Set();
let chosen = document.documentElement.dataset.theme || savedChoice("theme", "auto"); // a document in a frame may be given one
let colours = new Map();

function apply() {
  const shown = chosen === "auto" ? (dark.matches ? "dark" : "light") : chosen;
  document.documentElement.dataset.theme = shown;
  colours = new Map();
  for (const watcher of [...watchers]) watcher(shown);
}

dark.addEventListener("change", apply);
apply();

const shownTheme = () => document.documentElement.dataset.theme;
export const nextTheme = (theme) => ({ auto: "light", light: "dark", dark: "auto" })[theme];

export function useTheme() {
  const [theme, setTheme] = useState(chosen);
  return [
    theme,
    (next) => {
      chosen = next;
      saveChoice("theme", next);
      apply();
      setTheme(next);
    },
  ];
}

// "light" or "dark" as shown now; canvases are redrawn when it changes.
export function useShownTheme() {
  const [shown, setShown] = useState(shownTheme());
  useEffect(() => {
    watchers.add(setShown);
    return () => watchers.delete(setShown);
  }, []);
  return shown;
}

// The value of a CSS variable: colour("--accent").
export function colour(name) {
  if (!colours.has(name)) colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return colours.get(name);
}

// Styles of lines: twenty colours, then the same ones dashed; the same number has the same style everywhere.
const SERIES = 20,
  DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];
export const seriesColour = (at) => colour(`--series-${(at % SERIES) + 1}`);
export const seriesDash = (at) => DASHES[Math.floor(at / SERIES) % DASHES.length];

// The style of each run, by its id: that of its place, so that a run looks the same beside any others. Of two runs that
// would look alike the newer one takes the next free style.
export function runStyles(runs) {
  const all = SERIES * DASHES.length,
    styles = new Map(),
    taken = new Set();
  for (const run of [...runs].sort((a, b) => (a.started ?? 0) - (b.started ?? 0) || a.place - b.place)) {
    let at = run.place % all;
    while (taken.has(at) && taken.size < all) at = (at + 1) % all;
    taken.add(at);
    styles.set(run.id, at);
  }
  return styles;
}
