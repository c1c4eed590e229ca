// Charts in sections and grids. Those around the window are there; what is before and behind them is one element each, as high
// as they are, so that ten thousand charts cost what thirty do.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../h.js";
import { Icon } from "../parts/controls.js";
import { count } from "../parts/format.js";
import { isFlung } from "./painter.js";

const COLUMN = 380, // pixels, as in charts.css: the narrowest card, what is between two, a row, the head of a section
  GAP = 10,
  ROW = 232,
  HEAD = 32,
  BELOW = 16;
const FEW = 48, // so many are cards together
  FIRST = 4, // sections before anything is measured
  AROUND = 800; // pixels above and below the window in which charts are cards

/** How many cards fit side by side. */
export const columnsIn = (width) => Math.max(1, Math.floor((width + GAP) / (COLUMN + GAP)));

/**
 * The rows of a grid, each from one place of the list to another; a wide card has a row of its own.
 * @param {{ key: string }[]} list
 * @param {string[]} wide
 * @param {number} columns
 */
export function rowsOf(list, wide, columns) {
  const rows = [],
    isWide = (at) => wide.includes(list[at].key);
  let from = 0;
  while (from < list.length) {
    let to = from + 1;
    if (!isWide(from)) while (to < list.length && to - from < columns && !isWide(to)) to++;
    rows.push({ from, to });
    from = to;
  }
  return rows;
}

/**
 * Which of the rows lie between two heights of all: the places of the list, and the pixels before and behind them.
 * @param {{ from: number, to: number }[]} rows
 * @param {(row: { from: number, to: number }) => number} heightOf with what is below it
 */
export function between(rows, heightOf, low, high) {
  const found = { from: 0, to: 0, before: 0, behind: 0 };
  let top = 0;
  for (const row of rows) {
    const bottom = top + heightOf(row);
    if (bottom <= low) found.before = bottom;
    else if (top >= high) found.behind += bottom - top;
    else {
      if (!found.to) found.from = row.from;
      found.to = row.to;
    }
    top = bottom;
  }
  return found;
}

// Sections and long grids look where they are once in a frame in which something scrolls; while the page is flung past, not before
// it rests.
const looks = /** @type {Set<() => void>} */ (new Set());
let frame = 0;
function soon() {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    if (isFlung()) soon();
    else for (const look of looks) look();
  });
}

function follow(look) {
  if (!looks.size) {
    addEventListener("scroll", soon, { capture: true, passive: true });
    addEventListener("resize", soon);
  }
  looks.add(look);
  return () => {
    looks.delete(look);
    if (looks.size) return;
    removeEventListener("scroll", soon, { capture: true });
    removeEventListener("resize", soon);
  };
}

/** @typedef {{ list: { key: string }[], card: (item: any) => any, wide?: string[] }} Cards */

/** @param {Cards} given */
function ChartGrid({ list, card, wide = [] }) {
  if (list.length <= FEW) return html`<div class="charts">${list.map(card)}</div>`;
  return html`<${LongGrid} list=${list} card=${card} wide=${wide} />`;
}

/** @param {Cards} given */
function LongGrid({ list, card, wide = [] }) {
  const grid = useRef(/** @type {HTMLElement | null} */ (null)),
    heights = useRef(new Map());
  const [seen, setSeen] = useState({ from: 0, to: FEW, before: 0, behind: 0 });
  const latest = useRef({ list, wide });
  latest.current = { list, wide };
  const look = () => {
    if (!grid.current) return;
    const { top, width } = grid.current.getBoundingClientRect(),
      known = heights.current,
      { list: all, wide: full } = latest.current;
    const heightOf = ({ from, to }) =>
      GAP + Math.max(ROW, ...all.slice(from, to).map(({ key }) => known.get(key) || 0));
    const next = between(rowsOf(all, full, columnsIn(width)), heightOf, -AROUND - top, innerHeight + AROUND - top);
    setSeen((old) => (JSON.stringify(old) === JSON.stringify(next) ? old : next));
  };
  useEffect(() => follow(look), []);
  useLayoutEffect(look, [list, wide]);
  // A row is as high as its cards were.
  useEffect(() => {
    for (const each of grid.current?.children ?? [])
      if (each instanceof HTMLElement && each.dataset.key) heights.current.set(each.dataset.key, each.offsetHeight);
  }, [seen]);
  const space = (name, height) =>
    height > 0 && html`<div key=${name} class="charts-space" style=${{ height: `${height - GAP}px` }}></div>`;
  return html`<div class="charts" ref=${grid}>${space("before", seen.before)}${list.slice(seen.from, seen.to).map(card)}
    ${space("behind", seen.behind)}</div>`;
}

/**
 * Sections of charts: each has its name, which folds it, and its grid. One without a name is a grid alone.
 * @param {Omit<Cards, "list"> & { sections: [string, { key: string }[]][], isOpen: (name: string) => boolean,
 *   onToggle: (name: string) => void }} given
 */
export function ChartSections({ sections, isOpen, onToggle, card, wide = [] }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null)),
    heights = useRef(new Map()),
    latest = useRef(/** @type {() => void} */ (() => {}));
  const [seen, setSeen] = useState({ from: 0, to: FIRST, before: 0, behind: 0 });
  const openNames = sections.map(([name]) => Number(isOpen(name))).join("");
  latest.current = () => {
    if (!place.current) return;
    const { top, width } = place.current.getBoundingClientRect(),
      columns = columnsIn(width);
    const guess = (name, list) => HEAD + (isOpen(name) ? rowsOf(list, wide, columns).length * (ROW + GAP) : 0);
    const heightOf = ({ from }) => {
      const [name, list] = sections[from];
      return heights.current.get(`${isOpen(name)} ${name}`) ?? guess(name, list) + BELOW;
    };
    const each = sections.map((_, at) => ({ from: at, to: at + 1 }));
    const next = between(each, heightOf, -AROUND - top, innerHeight + AROUND - top);
    setSeen((old) => (JSON.stringify(old) === JSON.stringify(next) ? old : next));
  };
  useEffect(() => follow(() => latest.current()), []);
  useLayoutEffect(() => latest.current(), [sections, wide, openNames]);
  // A section is as high as it was.
  useEffect(() => {
    for (const each of place.current?.children ?? [])
      if (each instanceof HTMLElement && each.dataset.section !== undefined)
        heights.current.set(each.dataset.section, each.offsetHeight + BELOW);
  });
  const space = (name, height) => height > 0 && html`<div key=${name} style=${{ height: `${height}px` }}></div>`;
  return html`<div ref=${place}>${space("before", seen.before)}${sections
    .slice(seen.from, seen.to)
    .map(([name, list]) => {
      const open = isOpen(name);
      return html`<section class="chart-group" key=${name} data-section=${`${open} ${name}`} aria-label=${name || "Metrics found"}>
        ${
          name &&
          html`<h2>
            <button type="button" class="group-head" aria-expanded=${String(open)} onClick=${() => onToggle(name)}>
              <${Icon} name=${open ? "down" : "right"} size=${12} />${name}
              <span class="muted">${count(list.length)}</span></button>
          </h2>`
        }
        ${open && html`<${ChartGrid} list=${list} card=${card} wide=${wide} />`}
      </section>`;
    })}${space("behind", seen.behind)}</div>`;
}
