// What every line of a chart has under the pointer: a list beside it, the highest value first.
import { quantity } from "../parts/format.js";
import { formatX } from "./scales.js";
import { escapeInvisible } from "../parts/invisible.js";

const MAX_ROWS = 12;
const AWAY = 14; // pixels beside the pointer

export class Tip {
  /** @param {import("./plot.js").Plot} plot */
  constructor(plot) {
    this.plot = plot;
    this.box = document.createElement("div");
    this.box.className = "chart-tip";
    this.box.setAttribute("aria-hidden", "true"); // the readout says the value under the cursor
    this.box.hidden = true;
  }

  show(mark, look) {
    const { u, what } = this.plot;
    this.box.hidden = !mark;
    if (!mark) return;
    if (!this.box.isConnected) u.over.append(this.box);
    const rows = valuesAt(what.lines, mark.x);
    const mine = rows.findIndex(({ line }) => line.id === what.focus),
      from = Math.max(0, Math.min(mine - Math.floor(MAX_ROWS / 2), rows.length - MAX_ROWS));
    const shown = rows.slice(from, from + MAX_ROWS);
    this.box.replaceChildren(
      row("chart-tip-x", formatX(look.kind, mark.x), ""),
      ...(from > 0 ? [row("chart-tip-more", `${from} above`, "")] : []),
      ...shown.map(({ line, value }) =>
        row(line.id === what.focus ? "on" : "", line.short || line.name, text(value, what.metric), line.colour),
      ),
      ...(rows.length > from + MAX_ROWS
        ? [row("chart-tip-more", `${rows.length - from - MAX_ROWS} more below`, "")]
        : []),
    );
    const left = u.valToPos(mark.x, "x"),
      { clientWidth: width, clientHeight: height } = u.over,
      over = left > width / 2;
    this.box.style.left = over ? "" : `${left + AWAY}px`;
    this.box.style.right = over ? `${width - left + AWAY}px` : "";
    const top = (u.cursor.top ?? 0) - this.box.offsetHeight / 2;
    this.box.style.top = `${Math.max(-26, Math.min(top, height - this.box.offsetHeight + 44))}px`;
  }
}

const text = (value, { key, unit }) => quantity(value, key, unit);

function row(kind, name, value, colour = "") {
  const made = document.createElement("div"),
    swatch = document.createElement("i"),
    [title, number] = [document.createElement("span"), document.createElement("b")];
  made.className = kind;
  if (colour) {
    swatch.style.background = colour;
    made.append(swatch);
  }
  title.textContent = escapeInvisible(name);
  number.textContent = value;
  made.append(title, number);
  return made;
}

/**
 * The value of each line at x, the highest first; lines that do not reach x are left out.
 * @param {any[]} lines
 * @param {number} x
 */
export function valuesAt(lines, x) {
  const found = [];
  for (const line of lines) {
    const { marks } = line;
    if (line.ghost || !marks.length || x < marks.x[0] || x > marks.last[marks.length - 1]) continue;
    const value = marks.mid[marks.nearest(x)];
    if (value !== null && value !== undefined) found.push({ line, value });
  }
  return found.sort((a, b) => b.value - a.value);
}
