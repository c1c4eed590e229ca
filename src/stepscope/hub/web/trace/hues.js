// Which of the series' colours a name of a span has.
import { SERIES } from "../theme.js";

// A name by itself has always the same one; names that differ in their figures only have the same.
export function hue(name) {
  let sum = 7;
  name = kin(name);
  for (let at = 0; at < name.length; at++) sum = (sum * 31 + name.charCodeAt(at)) >>> 0;
  return sum % SERIES;
}

const kin = (name) => name.replace(/\d+/g, "");

// Of the names of one trace no two have the same while there are colours left: whose own is taken gets the next that is free.
export function huesOf(names) {
  const found = new Map(), taken = new Set();
  for (const name of names) {
    if (found.has(kin(name))) continue;
    let mine = hue(name);
    for (let turn = 0; turn < SERIES && taken.has(mine) && taken.size < SERIES; turn++) mine = (mine + 1) % SERIES;
    taken.add(mine);
    found.set(kin(name), mine);
  }
  return names.map((name) => found.get(kin(name)));
}
