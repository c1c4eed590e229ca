// A chart as a card: name, value under the cursor, the plot, and how much of the data is on screen.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../h.js";
import { useShownTheme } from "../theme.js";
import { IconButton, Swatch } from "../parts/controls.js";
import { count, counted, quantity } from "../parts/format.js";
import { lastText } from "../parts/last.js";
import { useMedia } from "../use.js";
import { inSight } from "./painter.js";
import { covers, Plot, sizeOf } from "./plot.js";
import { belowLog, formatX, outliers } from "./scales.js";
import { highlight, highlighted, onHighlight } from "./highlight.js";
import { ChartMenu } from "./menu.js";
import { Tip } from "./tip.js";
import { Values } from "./values.js";

const NEAR = 28, // pixels within which a line is meant by the pointer
  IN_LEGEND = 12;

// `source` gives lines: watch(notify) -> stop, and read() -> { lines, loading, error, superseded, unit }.
// `look`: { kind, window, log, weight, flags, values }. `on`: { zoom, reset, pick(mark), hover, legend(id) }. With `onSettings` the
// card has a menu, and `settings` ({ log, weight, y, values }) come before the look. `linked`: the line under the pointer is
// highlighted in all charts, and a tip lists the value of every line there. `place` and `grip` are those of a card that can
// be moved, `metric` the name of the one metric that it shows.
export function ChartCard({
  title,
  hint,
  source,
  look: shared,
  on,
  group,
  pinned,
  onPin,
  wide,
  onWide,
  empty,
  settings,
  onSettings,
  linked = false,
  place: at,
  grip,
  metric,
}) {
  const look = useMemo(() => (settings ? { ...shared, ...settings } : shared), [shared, JSON.stringify(settings)]);
  const card = useRef(/** @type {HTMLElement | null} */ (null)),
    place = useRef(/** @type {HTMLElement | null} */ (null)),
    plot = useRef(/** @type {Plot | null} */ (null)),
    readout = useRef(/** @type {HTMLElement | null} */ (null)),
    tip = useRef(/** @type {Tip | null} */ (null));
  const [near, setNear] = useState(false);
  const [state, setState] = useState(() => ({ ...source.read(), n: 0 }));
  const latest = useRef({ look, on });
  latest.current = { look, on };
  const theme = useShownTheme();

  // Charts that come near are measured before any of them is made: a chart that is made changes the page.
  const box = useRef(/** @type {{ width: number, height: number } | undefined} */ (undefined));
  const approached = (now) => {
    box.current = now && place.current ? sizeOf(place.current) : undefined;
    setNear(now);
  };
  useEffect(() => inSight(card.current, approached), []);
  useEffect(() => {
    if (!near) return undefined;
    let timer = 0;
    const notify = (live) => {
      draw(live);
      // Words follow the lines at their own pace.
      if (!live) {
        clearTimeout(timer);
        timer = 0;
        setState({ ...source.read() });
      } else if (!timer)
        timer = setTimeout(() => {
          timer = 0;
          setState({ ...source.read() });
        }, 500);
    };
    const stop = source.watch(notify);
    setState({ ...source.read() });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [near, source]);

  // The plot lives while the card is near the screen; another kind of scale is another plot.
  useLayoutEffect(() => {
    if (!near) return undefined;
    const through = {
      zoom: (...args) => latest.current.on.zoom?.(...args),
      reset: () => latest.current.on.reset?.(),
      pick: (mark) => latest.current.on.pick?.(mark, plot.current),
      hover: (mark) => say(mark),
    };
    const made = new Plot(place.current, what(), through, group, box.current);
    box.current = undefined;
    plot.current = made;
    if (linked) tip.current = new Tip(made);
    made.show(what());
    return () => {
      made.destroy();
      plot.current = null;
      tip.current = null;
    };
  }, [near, look.log, look.kind, group, linked]);
  useEffect(() => draw(false), [look, theme, wide]);
  useEffect(() => (linked && near ? onHighlight(() => draw(false)) : undefined), [linked, near]);

  const metricOf = (read) => ({ key: hint || title, unit: read.unit });
  const what = () => ({
    ...latest.current.look,
    lines: source.read().lines,
    metric: metricOf(source.read()),
    ...(linked ? { focus: highlighted() } : {}),
  });
  function draw(live) {
    plot.current?.show(what(), !live);
  }

  function say(mark) {
    const text = readout.current;
    if (!text) return;
    text.textContent = mark ? words(mark, plot.current, latest.current.look) : "";
    card.current?.classList.toggle("attended", !!mark);
    if (!linked) return;
    if (plot.current?.pointed && mark?.led) highlight(mark.away < NEAR ? mark.line.id : null);
    tip.current?.show(mark?.led ? mark : null, latest.current.look);
  }

  // The pointer left the chart: nothing is highlighted any more.
  const left = () => {
    if (!linked) return;
    highlight(null);
    tip.current?.show(null, latest.current.look);
  };

  function keys(event) {
    if (event.target !== place.current) return;
    const { key } = event;
    if (["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(key))
      plot.current?.key(key, event.shiftKey);
    else if (key === "Enter" && plot.current?.mark) on.pick?.(plot.current.mark, plot.current);
    else if (key === "0" || key === "Backspace") on.reset?.();
    else if (key === "+" || key === "=" || key === "-") magnify(key === "-" ? 2 : 0.5);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  function magnify(factor) {
    if (!plot.current) return;
    const [low, high] = plot.current.rangeOfX();
    const middle = plot.current.mark?.x ?? (low + high) / 2,
      half = ((high - low) * factor) / 2;
    on.zoom?.(middle - half, middle + half);
  }

  const lines = state.lines.filter((line) => !line.ghost);
  const marks = lines.reduce((sum, line) => sum + line.marks.length, 0);
  const waiting = !marks && !state.error && !!(state.loading || state.stale);
  const flagged = lines.reduce((all, line) => all | line.marks.flagged, 0);
  return html`<section class=${"chart panel" + (wide ? " wide" : "")} ref=${card} data-key=${hint || title} data-place=${at}
      aria-label=${title}>
    <header class="chart-head">
      <h3 title=${hint || title}>${title}${state.unit && html`<span class="chart-unit">${state.unit}</span>`}</h3>
      ${
        flagged
          ? html`<span class="chip bad chart-flag"
              title="Some values are not finite; marked ⊗ and △">${flagWords(flagged)}</span>`
          : null
      }
      <output class="chart-readout mono" ref=${readout}></output>
      <${LastValue} lines=${lines} metric=${metricOf(state)} />
      <span class="chart-tools">
        ${grip}
        ${
          onPin &&
          html`<${IconButton} icon="pin" label=${pinned ? `Unpin ${title}` : `Pin ${title}`} on=${pinned}
              onClick=${onPin} />`
        }
        ${
          onWide &&
          html`<${IconButton} icon="wide" label=${wide ? `Make ${title} small` : `Make ${title} wide`} on=${wide}
              onClick=${onWide} />`
        }
        ${
          onSettings &&
          html`<${ChartMenu} title=${title} name=${hint || title} metric=${metric} plot=${plot} look=${look} settings=${settings}
              onSettings=${onSettings} source=${source} />`
        }
      </span>
    </header>
    <div class=${"chart-plot" + (marks ? "" : " bare") + (waiting ? " waiting" : "")} aria-busy=${String(near && waiting)}
        ref=${place} tabindex="0" role="application" aria-roledescription="chart"
      aria-label=${`${title}: arrow keys move the cursor, up and down go to the maximum and minimum, Enter opens the step`}
          onKeyDown=${keys} onPointerLeave=${left}>
      ${waiting ? null : note(state, lines, empty, look.log && belowLog(lines))}
    </div>
    <footer class="chart-foot">
      ${lines.length > 1 ? html`<${Legend} lines=${lines} plot=${plot} onPick=${on.legend} linked=${linked} />` : null}
      <span class="chart-count"
          title=${[countWords(state, lines, look), ...countHint(lines, look.log)].join(". ")}>
            ${countWords(state, lines, look)}</span>
    </footer>
    ${
      look.values &&
      marks > 0 &&
      html`<${Values} lines=${lines} metric=${metricOf(state)} zoomed=${!!look.window} title=${title} />`
    }
  </section>`;
}

// The names of the lines; where `onPick` is given, a click hides a line.
function Legend({ lines, plot, onPick, linked }) {
  const focus = (id) => (linked ? highlight(id) : plot.current?.show({ ...plot.current.what, focus: id }));
  const item = (line) => html`<${Swatch} at=${line.at} />${line.short || line.name}`;
  const scrolls = useMedia("(max-width: 600px)") && !onPick ? 0 : undefined;
  return html`<span class="chart-legend" tabindex=${scrolls}>${lines.slice(0, IN_LEGEND).map((line) => {
    const over = { onPointerEnter: () => focus(line.id), onPointerLeave: () => focus(null) };
    return onPick
      ? html`<button type="button" key=${line.id} title=${`Hide ${line.name}`} ...${over}
          onClick=${() => {
            focus(null);
            onPick(line.id);
          }}>${item(line)}</button>`
      : html`<span key=${line.id} title=${line.name} ...${over}>${item(line)}</span>`;
  })}
    ${lines.length > IN_LEGEND ? html`<span>and ${lines.length - IN_LEGEND} more</span>` : null}</span>`;
}

function note(state, lines, empty, below) {
  if (state.error) return html`<p class="chart-note bad-text" role="alert">${state.error.message}</p>`;
  const marks = lines.reduce((sum, line) => sum + line.marks.length, 0);
  if (marks && marks === below?.gone) return html`<${Note}>No positive values to show on a log scale<//>`;
  if (marks) return null;
  if (lines.some((line) => line.marks.unmatched))
    return html`<${Note}>Too many steps to match the two metrics; zoom in<//>`;
  return html`<${Note}>${empty || "No points in this range"}<//>`;
}

// Words in place of the lines, in front of the grid if there is one.
function Note({ children }) {
  return html`<p class="chart-note" style=${{ zIndex: 1 }}>
    <span style=${{ background: "var(--panel)", padding: "2px 8px" }}>${children}</span></p>`;
}

function flagWords(flags) {
  return [flags & 1 && "NaN", flags & 2 && "Inf", flags & 4 && "-Inf"].filter(Boolean).join(" ");
}

// The last value of the metric, as the hub gives it, whatever part of the line is in view.
function LastValue({ lines, metric: { key, unit } }) {
  const last = lines.length === 1 ? lines[0].last : null;
  if (!last) return html`<span class="chart-last mono"></span>`;
  return html`<span class="chart-last mono" title=${lastText(last.ranks.length, last.step)}
    >${quantity(last.value, key, unit)}</span>`;
}

// How much of the data is on screen, and what is not, and why.
function countWords(state, lines, { log, y, window }) {
  if (!lines.length) return "";
  const sum = (of) => lines.reduce((all, { marks }) => all + (of(marks) || 0), 0);
  const { gone, cut } = log ? belowLog(lines) : { gone: 0, cut: 0 };
  const parts = [
    counted(
      sum((marks) => marks.total),
      "point",
    ),
    `${count(sum((marks) => marks.length) - gone)} shown`,
  ];
  const withoutX = sum((marks) => marks.withoutX),
    unmatched = sum((marks) => marks.unmatched);
  if (gone) parts.push(`${count(gone)} ≤ 0 hidden`);
  if (cut) parts.push(`${count(cut)} clipped at 0`);
  if (withoutX) parts.push(`${count(withoutX)} without x`);
  if (unmatched) parts.push(`${count(unmatched)} may have no x`);
  const out = outliers(lines, y, log, window);
  if (out) parts.unshift(`${count(out)} outside the range`); // first, as the end may be cut off
  if (state.superseded) parts.push(`${count(state.superseded)} superseded`);
  return parts.join(", ");
}

function countHint(lines, log) {
  const { gone, cut } = log ? belowLog(lines) : {},
    any = (name) => lines.some(({ marks }) => marks[name]);
  return [
    (gone || cut) && "A log scale cannot show 0 or negative values",
    any("withoutX") && "Points at steps without a value of the x metric are not drawn",
    any("unmatched") && "Points that could not be matched to an x value are not drawn; zoom in to match them",
  ].filter(Boolean);
}

// What the cursor is on: where, the value, and how far the values spread there.
function words(mark, plot, look) {
  const { line, i, x } = mark;
  const { marks } = line,
    mid = marks.mid[i],
    { key, unit } = plot.what.metric;
  const flag = marks.flags[i] ? " " + flagWords(marks.flags[i]) : "";
  const spread =
    mid !== null && marks.high[i] > marks.low[i]
      ? ` [${quantity(marks.low[i], key, unit, 3)} … ${quantity(marks.high[i], key, unit, 3)}]`
      : "";
  const who = plot.what.lines.filter((each) => !each.ghost).length > 1 ? ` ${line.short || line.name}` : "";
  const near = [flagAt(plot, look.flags), findingAt(look.findings, x)].filter(Boolean).join(", ");
  const from = covers(mark) ? "" : ` (${formatX(look.kind, marks.x[i])})`;
  const value = mid === null ? "" : quantity(mid, key, unit);
  return `${formatX(look.kind, x)}${who}  ${value}${spread}${flag}${from}${near ? "  ⚑ " + near : ""}`;
}

const findingAt = (findings, x) => (findings || []).find(({ from, to }) => x >= from && x <= to)?.text;

function flagAt(plot, flags) {
  const left = plot?.u?.cursor.left;
  if (!flags?.length || left === undefined || left < 0) return "";
  const near = flags
    .map((flag) => ({ ...flag, away: Math.abs(plot.u.valToPos(flag.x, "x") - left) }))
    .filter(({ away }) => away < 4);
  return near
    .sort((a, b) => a.away - b.away)
    .slice(0, 3)
    .map(({ record }) => record.name || record.body)
    .join(", ");
}
