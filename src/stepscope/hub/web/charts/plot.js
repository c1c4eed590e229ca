// One chart on uPlot: it has the axes, the cursor and the selection; lines are drawn from marks in draw.js.
import { colour } from "../theme.js";
import uPlot from "../vendor/uplot.js";
import { drawFindings, drawFlags, drawLine, drawMarker, drawNonFinite } from "./draw.js";
import { forget, join, point, repaint } from "./painter.js";
import { chosenSpanY, factorY, logTicks, rangeX, rangeY, roomX, roomY, tickLog, tickX, tickY } from "./scales.js";

const MAX_BANDS = 10; // lines that have their bands drawn; of more, only the one in focus
const FONT = "11px Inter, system-ui, sans-serif";

// what: { lines, metric: { key, unit }, flags, window: [from, to] | null, kind: step|time|relative|metric, log, weight,
//   y: "robust" or [low, high], focus, findings: [{ from, to, expected, colour, text }], under(u): draws behind the lines }
// on: { zoom(from, to), reset(), pick(mark), hover(mark|null) }
// The canvas is made with the first drawing, which waits its turn with all others: a chart without values needs none, and one that is
// scrolled past before its turn costs nothing.
export class Plot {
  /** What draws the canvas; there from the first drawing on. */
  u = /** @type {uPlot} */ (/** @type {unknown} */ (null));

  constructor(element, what, on, group, box = sizeOf(element)) {
    this.element = element;
    this.box = box; // followed by an observer: to ask the element would lay out the page for each chart
    this.what = what;
    this.on = on;
    this.paintedAt = 0;
    this.mark = null;
    this.factor = 1;
    this.nonFinite = 0;
    this.dot = document.createElement("div");
    this.dot.className = "chart-dot";
    this.group = group;
    this.pointed = false;
    this.leave = () => {};
  }

  make() {
    this.u = new uPlot(
      this.options(),
      [
        [0, 1],
        [0, 1],
      ],
      this.element,
    );
    this.leave = join(this.group, this);
    this.u.over.append(this.dot);
    this.listen();
  }

  /** @returns {import("uplot").Options} */
  options() {
    const { width, height } = this.size(),
      metric = () => this.what.metric || {};
    const axis = {
      stroke: () => colour("--axis"),
      font: FONT,
      grid: { stroke: () => colour("--grid"), width: 1 },
      ticks: { show: false },
    };
    return {
      width,
      height,
      padding: [8, 12, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        points: { show: false },
        drag: { x: true, y: false, setScale: false },
      },
      scales: {
        x: { time: false, range: () => this.rangeOfX() },
        y: { distr: this.what.log ? 3 : 1, log: 10, range: () => this.rangeOfY() },
      },
      axes: [
        {
          ...axis,
          size: 24,
          gap: 5,
          space: roomX(this.what.kind),
          values: tickX(this.what.kind),
          grid: { show: false },
        },
        {
          ...axis,
          size: roomY,
          gap: 6,
          space: 28,
          ...(this.what.log ? { ...logTicks, values: tickLog(metric) } : { values: tickY(() => this.factor, metric) }),
        },
      ],
      series: [{}, { show: false, scale: "y" }],
      hooks: {
        draw: [() => this.draw()],
        setCursor: [() => this.moved()],
        setSelect: [() => this.selected()],
      },
    };
  }

  size() {
    return { width: Math.max(this.box.width, 120), height: Math.max(this.box.height, 80) };
  }

  rangeOfX() {
    return rangeX(this.what.lines, this.what.window);
  }

  /** @returns {[number, number]} */
  rangeOfY() {
    const { lines, log, y } = this.what,
      span = chosenSpanY(lines, this.rangeOfX(), this.what);
    const [low, high] = Array.isArray(y) ? y : [null, null];
    this.factor = log ? 1 : factorY({ low: low ?? span.low, high: high ?? span.high });
    const [bottom, top] = rangeY({ low: span.low * this.factor, high: span.high * this.factor }, log);
    /** @type {[number, number]} */
    const ends = [
      low === null || (log && low <= 0) ? bottom : low * this.factor,
      high === null || (log && high <= 0) ? top : high * this.factor,
    ];
    return ends[0] < ends[1] ? ends : [bottom, top];
  }

  // Where a value is, in pixels of the page or of the canvas.
  toY(value, canvas = false) {
    return this.u.valToPos(value * this.factor, "y", canvas);
  }

  // How much of the height a difference takes.
  share(difference) {
    const { min = 0, max = 1 } = this.u.scales.y;
    return (difference * this.factor) / (max - min);
  }

  // Show something else; a change of the scale's kind needs a new plot, which the caller makes.
  show(what, now = true) {
    this.what = what;
    if (this.u || what.lines.some(({ marks }) => marks.length)) repaint(this, now);
  }

  paint() {
    if (!this.element.isConnected) return;
    if (!this.u) this.make();
    const { width, height } = this.size();
    if (width !== this.u.width || height !== this.u.height) this.u.setSize({ width, height });
    // Within a batch everything is drawn once, now, so that the painter knows what it cost.
    this.u.batch(() => {
      const [left, right] = this.rangeOfX(),
        [bottom, top] = this.rangeOfY();
      this.u.setData(
        [
          [left, right],
          [bottom, top],
        ],
        false,
      );
      this.u.setScale("x", { min: left, max: right });
      this.u.setScale("y", { min: bottom, max: top });
      this.u.redraw(false, true);
    });
    if (this.mark) this.renew();
  }

  // What was attended to is read anew from the lines as they are now; where its x is gone, by its place on the screen.
  renew() {
    const {
        line: { id },
        x,
        led,
      } = this.mark,
      { min = -Infinity, max = Infinity } = this.u.scales.x,
      gone = x < min || x > max;
    const line = this.what.lines.find((each) => !each.ghost && each.id === id && each.marks.length);
    if (!line || (gone && !led)) return this.showMark(null);
    const i = line.marks.nearest(gone ? this.u.posToVal(this.u.cursor.left ?? 0, "x") : x);
    return led ? this.lead({ line, i, x: line.marks.x[i], away: 0 }) : this.showMark({ line, i, x, away: 0 });
  }

  draw() {
    const { lines, flags, findings, log, weight, focus } = this.what,
      Y = (value) => this.toY(value, true),
      ctx = this.u.ctx,
      { left, top, width, height } = this.u.bbox;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top - 1, width, height + 2);
    ctx.clip();
    if (this.factor === 1) this.what.under?.(this.u);
    drawFindings(this.u, findings || [], Y);
    drawFlags(this.u, flags || []);
    if (typeof this.what.marker === "number") drawMarker(this.u, this.what.marker);
    for (const line of lines) if (line.ghost) drawLine(this.u, line, { Y, weight, log });
    const front = lines.find((line) => !line.ghost && line.id === focus),
      crowded = lines.length > MAX_BANDS;
    for (const line of lines) {
      if (!line.ghost && line !== front) drawLine(this.u, line, { Y, weight, log, faint: !!front, bare: crowded });
    }
    if (front) drawLine(this.u, front, { Y, weight, log, front: true });
    ctx.restore();
    this.nonFinite = drawNonFinite(this.u, lines);
    const drawn = lines.reduce((sum, line) => sum + line.marks.length, 0);
    if (drawn && !(this.element.dataset.drawn > 0)) performance.mark("stepscope:line"); // seen in the browser's tools
    this.element.dataset.drawn = String(drawn);
    this.element.dataset.nonfinite = String(this.nonFinite);
    this.element.dataset.findings = String(findings?.length || 0);
  }

  // The cursor moved here: what stands out near it is attended to, and the charts beside are read at the same x.
  moved() {
    if (!this.pointed) return;
    const { left, top } = this.u.cursor;
    this.lead(left === undefined || left < 0 ? null : this.at(this.u.posToVal(left, "x"), top));
  }

  lead(mark) {
    this.showMark(mark && { ...mark, led: true });
    point(this.group, this, mark ? mark.x : null, mark?.line.id);
  }

  // A chart beside is attended to at x, on a line of which there may be one here too.
  follow(x, id) {
    const { min = Infinity, max = -Infinity } = this.u.scales.x,
      shown = x !== null && x >= min && x <= max;
    this.u.setCursor({ left: shown ? this.u.valToPos(x, "x") : -10, top: -10 }, false);
    this.u.over.parentNode?.querySelector(".u-cursor-x")?.classList.toggle("u-off", !shown);
    const lines = this.what.lines.filter((line) => !line.ghost && line.marks.length),
      line = lines.find((each) => each.id === id) || lines[0];
    this.showMark(shown && line ? { line, i: line.marks.nearest(x), x, away: 0 } : null);
  }

  /**
   * The mark nearest to x, of the line nearest to y where one is given.
   * @param {number} x
   * @param {number | null} [top]
   */
  at(x, top = null) {
    /** @type {{ line: any, i: number, away: number, x: number } | null} */
    let best = null;
    for (const line of this.what.lines) {
      if (line.ghost || !line.marks.length) continue;
      const i = this.nearestExtreme(line.marks, x);
      const value = line.marks.mid[i] ?? line.marks.low[i];
      const away =
        top === null || top < 0 || value === null ? 0 : Math.abs(this.toY(this.near(line.marks, i, top)) - top);
      if (!best || away < best.away) best = { line, i, away, x: line.marks.x[i] };
    }
    return best;
  }

  // Among the marks within a few pixels, the one that stands out most: that is what someone points at.
  nearestExtreme(marks, x) {
    const reach = Math.abs(this.u.posToVal(4, "x") - this.u.posToVal(0, "x"));
    let best = marks.nearest(x),
      height = -1;
    for (let i = Math.max(0, marks.find(x - reach)); i < marks.length && marks.x[i] <= x + reach; i++) {
      const out = marks.flags[i]
        ? Infinity
        : marks.mid[i] === null
          ? -1
          : marks.high[i] - marks.low[i] + Math.abs(this.step(marks, i));
      if (out > height * 3 + 1e-12) {
        height = out;
        best = i;
      }
    }
    return height > 0 && this.isProminent(height) ? best : marks.nearest(x);
  }

  step(marks, i) {
    const before = marks.mid[i - 1],
      after = marks.mid[i + 1],
      here = marks.mid[i];
    const side = [before, after].filter((value) => value !== null && value !== undefined);
    return side.length ? here - side.reduce((a, b) => a + b) / side.length : 0;
  }

  isProminent(height) {
    return height === Infinity || this.share(height) > 0.12;
  }

  // Which of a mark's values the pointer is nearest to.
  near(marks, i, top) {
    const values = [marks.high[i], marks.low[i], marks.mid[i]].filter((value) => value !== null);
    const away = (value) => Math.abs(this.toY(value) - top);
    return values.reduce((a, b) => (away(b) < away(a) ? b : a), values[0] ?? 0);
  }

  showMark(mark) {
    this.mark = mark;
    this.place();
    this.on.hover?.(mark);
  }

  place() {
    const { mark, dot } = this;
    const value = mark && this.valueOf(mark);
    if (value === null || value === undefined) {
      dot.style.display = "none";
      return;
    }
    dot.style.display = "block";
    dot.style.background = mark.line.colour;
    dot.style.transform = `translate(${this.u.valToPos(covers(mark) ? mark.x : mark.line.marks.x[mark.i], "x")}px, ${this.toY(value)}px)`;
  }

  // The value of a mark that is worth showing: the extreme that stands out, else the mean.
  valueOf({ line: { marks }, i }) {
    const mid = marks.mid[i];
    if (mid === null || mid === undefined) return null;
    const up = marks.high[i] - mid,
      down = mid - marks.low[i];
    if (this.share(Math.max(up, down)) < 0.12) return mid;
    return up >= down ? marks.high[i] : marks.low[i];
  }

  selected() {
    const { left, width } = this.u.select;
    if (width < 5) return;
    const from = this.u.posToVal(left, "x"),
      to = this.u.posToVal(left + width, "x");
    this.u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.dragged = performance.now();
    this.on.zoom?.(from, to);
  }

  listen() {
    const over = this.u.over;
    over.addEventListener("mouseenter", () => {
      this.pointed = true;
    });
    over.addEventListener("mouseleave", () => {
      this.pointed = false;
    });
    over.addEventListener("click", () => {
      if (performance.now() - (this.dragged || 0) < 250 || !this.mark) return;
      const { mark } = this;
      clearTimeout(this.picking);
      // Only where a second click can follow, to leave a zoom, is it waited for.
      this.picking = setTimeout(() => this.on.pick?.(mark), this.what.window ? 240 : 0);
    });
    over.addEventListener("dblclick", () => {
      clearTimeout(this.picking);
      this.on.reset?.();
    });
    this.observer = new ResizeObserver(([{ contentRect }]) => {
      const { width, height } = contentRect;
      if (width === this.box.width && height === this.box.height) return;
      this.box = { width, height };
      repaint(this, true);
    });
    this.observer.observe(this.element);
  }

  // Move the attention with the keyboard: by marks, to the ends, or to the highest and lowest.
  key(name, fast) {
    if (!this.u) return;
    const line = this.mark?.line || this.what.lines.find((each) => !each.ghost && each.marks.length);
    if (!line) return;
    const { marks } = line,
      { min = -Infinity, max = -Infinity } = this.u.scales.x;
    const first = marks.find(min);
    let end = first;
    while (end < marks.length && marks.x[end] <= max) end++;
    const here = this.mark ? Math.min(this.mark.i, marks.length - 1) : name === "ArrowLeft" ? end : first - 1,
      pace = fast ? 10 : 1;
    const best = (values, better) => {
      let found = -1;
      for (let i = first; i < end; i++)
        if (values[i] !== null && (found < 0 || better(values[i], values[found]))) found = i;
      return found;
    };
    const to = {
      ArrowRight: here + pace,
      ArrowLeft: here - pace,
      Home: first,
      End: end - 1,
      ArrowUp: best(marks.high, (a, b) => a > b),
      ArrowDown: best(marks.low, (a, b) => a < b),
    }[name];
    const i = Math.max(first, Math.min(end - 1, to));
    if (i < 0 || i >= marks.length) return;
    this.u.setCursor({ left: this.u.valToPos(marks.x[i], "x"), top: -10 }, false);
    this.lead({ line, i, x: marks.x[i], away: 0 });
    this.u.over.parentNode?.querySelector(".u-cursor-x")?.classList.remove("u-off");
  }

  destroy() {
    this.leave();
    forget(this);
    this.observer?.disconnect();
    this.u?.destroy();
  }
}

export const sizeOf = (element) => ({ width: element.clientWidth, height: element.clientHeight });

// Whether the stretch of a mark holds the x at which it is read; where there is no value, the nearest is shown.
export const covers = ({ line: { marks }, i, x }) => x >= marks.x[i] && x <= marks.last[i];
