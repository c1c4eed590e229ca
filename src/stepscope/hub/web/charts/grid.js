// Charts in a grid: those around the window are cards, the others hold their place with one element each.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../h.js";

const FEW = 48, // so many are cards together
  BLOCK = 12, // of more, cards come and go in blocks
  AROUND = 1000; // pixels above and below the window in which charts are cards

/**
 * Which of `many` places lie around the window, in whole blocks; all have about the same height on average.
 * @param {number} many
 * @param {{ top: number, height: number }} box of the grid
 * @param {number} window its height
 */
export function around(many, { top, height }, window) {
  if (top > window + AROUND || top + height < -AROUND) return { from: 0, to: 0 };
  if (many <= FEW) return { from: 0, to: many };
  const each = height / many || 1,
    within = (at) => Math.min(Math.max(0, at * BLOCK), many);
  return {
    from: within(Math.floor((-AROUND - top) / each / BLOCK)),
    to: within(Math.ceil((window + AROUND - top) / each / BLOCK)),
  };
}

// All grids look where they are once in a frame in which something scrolls.
const looks = /** @type {Set<() => void>} */ (new Set());
let frame = 0;
function soon() {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    for (const look of looks) look();
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

/** @param {{ list: { key: string }[], card: (item: any) => any, wide?: string[] }} given */
export function ChartGrid({ list, card, wide = [] }) {
  const grid = useRef(/** @type {HTMLElement | null} */ (null)),
    heights = useRef(new Map()),
    many = useRef(0);
  const [seen, setSeen] = useState({ from: 0, to: 0 });
  many.current = list.length;
  const look = () => {
    if (!grid.current) return;
    const next = around(many.current, grid.current.getBoundingClientRect(), innerHeight);
    setSeen((old) => (old.from === next.from && old.to === next.to ? old : next));
  };
  useEffect(() => follow(look), []);
  useLayoutEffect(look);
  // A place is as high as its card was.
  useEffect(() => {
    for (const each of grid.current?.children ?? [])
      if (each instanceof HTMLElement && each.dataset.later === undefined)
        heights.current.set(each.dataset.key, each.offsetHeight);
  }, [seen]);
  const later = ({ key }) => html`<section key=${key} class=${"chart panel later" + (wide.includes(key) ? " wide" : "")}
    data-key=${key} data-later="" aria-label=${key} style=${{ minHeight: `${heights.current.get(key) || 0}px` }}></section>`;
  const isCard = (at) => at >= seen.from && at < seen.to;
  return html`<div class="charts" ref=${grid}>${list.map((item, at) => (isCard(at) ? card(item) : later(item)))}</div>`;
}
