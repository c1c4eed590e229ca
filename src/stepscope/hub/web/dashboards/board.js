// A dashboard drawn for one run: charts two beside each other, one cursor and one zoom over all, live.
import { html, useEffect, useMemo } from "../h.js";
import { get, runPath } from "../api.js";
import { change, go, href, useParam } from "../router.js";
import { useFetch, useLive } from "../use.js";
import { colour, useShownTheme } from "../theme.js";
import { Grip } from "../parts/reorder.js";
import { Failure } from "../parts/states.js";
import { ChartCard } from "../charts/card.js";
import { Feed } from "../charts/feed.js";
import { pick } from "../charts/pick.js";
import { expressionSource, joinedSource, keySource, matching, POINTS, quantileSource } from "./sources.js";

// With `onMove(from, to)` the charts can be put in another order.
export function Board({ board, run, x, hideEmpty, by, onMove }) {
  const fetched = useFetch(
    async (signal) => {
      const spans = board.charts.some((chart) => chart.spans.length);
      const [one, keys, facets] = await Promise.all([
        get(runPath(run), {}, signal),
        get(runPath(run, "keys"), {}, signal),
        spans ? get("spans/facets", { run }, signal) : { names: [] },
      ]);
      return { run: one, keys: keys.keys, spans: facets.names.map((each) => each.name), of: run };
    },
    [run, board.charts.some((chart) => chart.spans.length)],
  );
  if (fetched.error) return html`<${Failure} error=${fetched.error} reload=${fetched.reload} />`;
  if (fetched.value?.of !== run) return html`<${Waiting} board=${board} />`;
  return html`<${Charts} board=${board} known=${fetched.value} x=${x} hideEmpty=${hideEmpty} by=${by}
      onMove=${onMove} onNews=${fetched.reload} />`;
}

// The places of the charts until the run is known, so that nothing jumps.
function Waiting({ board }) {
  return html`<div class="dash-grid" role="status" aria-label="Loading the run">${board.charts.map(
    (chart, at) => html`
    <section key=${at}
        class=${"chart panel dash-wait" + (chart.wide ? " wide" : "")}>
          <header class="chart-head"><h3>${titleOf(chart)}</h3></header>
          <div class="chart-plot waiting" aria-busy="true"></div></section>`,
  )}</div>`;
}

function Charts({ board, known, x, hideEmpty, by, onMove, onNews }) {
  const id = known.run.id,
    kind = x || board.x;
  const [from] = useParam("from"),
    [to] = useParam("to");
  const window = useMemo(
    () => (from && to && Number(from) < Number(to) ? [Number(from), Number(to)] : null),
    [from, to],
  );
  const setWindow = (next) =>
    change(
      !next
        ? { from: null, to: null }
        : kind === "step"
          ? { from: Math.floor(next[0]), to: Math.ceil(next[1]) }
          : { from: next[0].toFixed(3), to: next[1].toFixed(3) },
      { replace: false },
    );
  const theme = useShownTheme();
  const feeds = useMemo(() => new Map(), [id]);
  const ranks = by === "rank" ? "each" : "all";
  const feedOf = (axis) => {
    if (!feeds.has(axis))
      feeds.set(axis, new Feed(id, { x: axis, ranks, from: null, to: null, points: POINTS, ghosts: false }));
    return feeds.get(axis);
  };
  useEffect(
    () => () => {
      for (const feed of feeds.values()) feed.close();
    },
    [feeds],
  );
  useEffect(() => {
    for (const [axis, feed] of feeds)
      feed.change({
        ...feed.how,
        ranks,
        from: axis === kind ? (window?.[0] ?? null) : null,
        to: axis === kind ? (window?.[1] ?? null) : null,
      });
  }, [window, ranks, kind]);
  const cards = useMemo(
    () => board.charts.map((chart, at) => cardOf(chart, at, known, feedOf, chart.x || kind)),
    [board, known, kind, feeds],
  );
  useEffect(() => {
    for (const feed of feeds.values()) feed.recolour();
  }, [theme]);
  const going = ["running", "stalled", "importing"].includes(known.run.status);
  useLive(
    going ? { run: id, kind: ["metric", "span"] } : null,
    {
      records: (data) => {
        const unknown = [...feeds.values()].map((feed) => feed.take(data));
        if (unknown.some((keys) => keys.some((key) => !known.keys.some((each) => each.key === key)))) later(onNews);
        for (const card of cards) card.source?.stir?.();
      },
      gap: () => {
        for (const feed of feeds.values()) feed.refresh();
      },
    },
    [id, going],
  );
  const shown = hideEmpty ? cards.filter((card) => card.source) : cards,
    left = cards.filter((card) => !card.source);
  const movable = (card, at) =>
    onMove && {
      place: at,
      grip: html`<${Grip} name=${titleOf(card.chart)} at=${at} many=${shown.length}
          onMove=${(to) => onMove(cards.indexOf(card), cards.indexOf(shown[to]))} />`,
    };
  return html`<div class="dash-grid">${shown.map((card, at) =>
    card.source
      ? html`<${Card} key=${card.id + card.axis} card=${card} id=${id} window=${card.axis === kind ? window : null}
          onWindow=${setWindow} theme=${theme} movable=${movable(card, at)} />`
      : html`<${Nothing} key=${card.id} card=${card} movable=${movable(card, at)} />`,
  )}
    ${!shown.length && html`<p class="muted dash-none">This run has none of this dashboard's metrics.</p>`}
  </div>
  ${
    hideEmpty &&
    shown.length > 0 &&
    left.length > 0 &&
    html`<p
        class="muted dash-left">Not in this run: ${left.map((card) => titleOf(card.chart)).join(", ")}.</p>`
  }`;
}

function Card({ card, id, window, onWindow, theme, movable }) {
  const look = useMemo(
    () => ({
      kind: card.axis,
      window,
      log: card.chart.scale === "log",
      weight: 0,
      flags: [],
      under: bandsUnder(card.chart.bands),
    }),
    [card, window, theme],
  );
  const on = {
    zoom: (from, to) => onWindow([from, to]),
    reset: () => onWindow(null),
    pick: (mark, plot) =>
      mark.line.key &&
      pick(id, mark.line.key, mark, plot, { x: card.axis }, (step, rank) => go(href("run", id, { step, at: rank }))),
  };
  return html`<${ChartCard} title=${card.chart.title || card.names[0]}
      hint=${card.chart.text || card.names.join(", ")} source=${card.source} look=${look} on=${on}
    group=${"dashboard-" + card.axis} wide=${card.chart.wide} ...${movable} />`;
}

function Nothing({ card, movable }) {
  const wanted = wantedOf(card.chart);
  return html`<section class=${"chart panel dash-empty" + (card.chart.wide ? " wide" : "")}
      aria-label=${titleOf(card.chart)} data-place=${movable?.place}>
    <header class="chart-head"><h3>${titleOf(card.chart)}</h3>
      <span class="chart-tools chart-last">${movable?.grip}</span></header>
    <p class="chart-empty">Not in this run: <code>${wanted.slice(0, 3).join(", ")}${wanted.length > 3 ? ", …" : ""}
    </code>
    </p>
    </section>`;
}

const titleOf = (chart) => chart.title || wantedOf(chart)[0];
const wantedOf = (chart) => [...chart.keys, ...chart.spans, ...(chart.expressions || [])];

// What a chart shows of a run; one that finds nothing has no source.
function cardOf(chart, at, known, feedOf, axis) {
  const card = linesOf(chart, at, known, feedOf, axis);
  if (!chart.expressions?.length) return card;
  const more = expressionSource(known.run.id, chart.expressions, card.axis, chart.unit);
  const source = card.source ? joinedSource(card.source, more, card.names.length) : more;
  return { ...card, names: [...card.names, ...chart.expressions], source };
}

function linesOf(chart, at, known, feedOf, axis) {
  const names = matching(
      chart.keys,
      known.keys.map((each) => each.key),
    ),
    spans = matching(chart.spans, known.spans);
  const card = { id: `${at} ${chart.title}`, chart, axis, names: [...names, ...spans], source: null };
  if (!card.names.length) return card;
  const keys = names.map((name) => known.keys.find((each) => each.key === name));
  // What has no steps, as the readings of a machine, is drawn along the time of the run instead.
  if (axis === "step" && keys.length && !spans.length && keys.every((each) => each.first_step === null))
    card.axis = axis = "relative";
  const spread =
    chart.quantiles.length ||
    spans.length ||
    keys.some((each) => each.type === "histogram" || each.type === "exponential_histogram");
  if (spread) {
    const levels = chart.quantiles.length ? chart.quantiles : [0.5, 0.99];
    const ms = spans.length && !chart.unit ? "ms" : chart.unit;
    return {
      ...card,
      source: quantileSource(known.run.id, {
        keys: names,
        spans,
        levels,
        x: axis,
        unit: ms,
        origin: known.run.started || 0,
      }),
    };
  }
  return { ...card, source: keySource(feedOf(axis), keys, chart.unit) };
}

let waiting = 0;
function later(act) {
  clearTimeout(waiting);
  waiting = setTimeout(act, 1000);
}

// Stretches of y that mean something, behind the lines: good, warning, critical, with their names at the edge.
const TONES = { good: ["--good", 0.08], note: ["--muted", 0.07], warning: ["--warn", 0.1], critical: ["--bad", 0.09] };

// A function that draws the bands on uPlot's canvas.
function bandsUnder(bands) {
  if (!bands?.length) return undefined;
  return (u) => {
    const ctx = u.ctx,
      { left, top, width, height } = u.bbox,
      ratio = devicePixelRatio || 1;
    const bottom = top + height;
    ctx.save();
    ctx.font = `${10 * ratio}px Inter, sans-serif`;
    ctx.textAlign = "right";
    ctx.textBaseline = "top";
    for (const band of bands) {
      const high = band.to === null ? top : clamp(u.valToPos(band.to, "y", true), top, bottom);
      const low = band.from === null ? bottom : clamp(u.valToPos(band.from, "y", true), top, bottom);
      if (!(low - high > 1)) continue;
      const [tone, alpha] = TONES[band.level] || TONES.note;
      ctx.fillStyle = colour(tone);
      ctx.globalAlpha = alpha;
      ctx.fillRect(left, high, width, low - high);
      ctx.globalAlpha = 0.35;
      if (band.from !== null && low < bottom) ctx.fillRect(left, low - ratio / 2, width, ratio);
      ctx.globalAlpha = 0.9;
      if (band.label && low - high > 14 * ratio) ctx.fillText(band.label, left + width - 5 * ratio, high + 3 * ratio);
    }
    ctx.restore();
  };
}

const clamp = (value, low, high) => (Number.isFinite(value) ? Math.min(Math.max(value, low), high) : high);
