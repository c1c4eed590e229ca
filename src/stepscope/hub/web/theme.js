// Light, dark, or the system's theme; charts read colours here and are notified when they change.
import { useEffect, useState } from "./h.js";
import { saveChoice, savedChoice } from "./use.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
const watchers = new Set();
let chosen = savedChoice("theme", "auto");
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

// Colours of lines, distinguishable also with colour blindness; the same number has the same colour everywhere.
export const SERIES = 8;
export const seriesColour = (at) => colour(`--series-${(at % SERIES) + 1}`);
