// Runs in a frame of a notebook: their states, findings and charts, drawn by the modules of the page.
import { html, render, useEffect, useLayoutEffect, useRef, useState } from "../h.js";
import { seriesColour, seriesDash, useShownTheme } from "../theme.js";
import { marksOf } from "../charts/marks.js";
import { Plot } from "../charts/plot.js";
import { Tip } from "../charts/tip.js";
import { Severity, Status, Swatch } from "../parts/controls.js";
import { quantity } from "../parts/format.js";

const POINTS = 1000; // marks of a line

const nameOf = (run) => run.name || run.id;

function linesOf(chart, runs) {
  return chart.lines.map((line) => ({
    id: line.run,
    at: line.run,
    ghost: false,
    name: nameOf(runs[line.run]),
    colour: seriesColour(line.run),
    dash: seriesDash(line.run),
    marks: marksOf(line, POINTS),
  }));
}

function Chart({ chart, runs }) {
  const place = useRef(/** @type {any} */ (null)),
    made = useRef(/** @type {{ plot: Plot, tip: Tip } | null} */ (null)),
    theme = useShownTheme(),
    [window, zoom] = useState(/** @type {[number, number] | null} */ (null)),
    what = {
      lines: linesOf(chart, runs),
      metric: { key: chart.key, unit: chart.unit },
      kind: "step",
      window,
      log: false,
      weight: 0,
      y: "robust",
      focus: null,
      findings: [],
    };
  useLayoutEffect(() => {
    const plot = new Plot(
      place.current,
      what,
      {
        zoom: (from, to) => zoom([from, to]),
        reset: () => zoom(null),
        hover: (mark) => made.current?.tip.show(mark, { kind: "step" }),
      },
      "notebook",
    );
    made.current = { plot, tip: new Tip(plot) };
    return () => plot.destroy();
  }, []);
  useEffect(() => made.current?.plot.show(what, true), [chart, window, theme]);
  const last = what.lines.length === 1 ? what.lines[0].marks.mid.at(-1) : null;
  return html`<section class="chart panel" data-key=${chart.key}>
    <div class="chart-head"><h3 title=${chart.key}>${chart.key}</h3>
      <span class="chart-last">${last === null || last === undefined ? "" : quantity(last, chart.key, chart.unit)}</span></div>
    <div class="chart-plot" ref=${place} role="img" aria-label=${`${chart.key} by step`}></div>
  </section>`;
}

function Runs({ runs }) {
  return html`<ul class="shown-runs">
    ${runs.map(
      (run, at) =>
        html`<li key=${run.id}><${Swatch} at=${at} />
        ${run.url ? html`<a href=${run.url} target="_blank" rel="noopener">${nameOf(run)}</a>` : html`<b>${nameOf(run)}</b>`}
        <span class="muted">${run.project}</span><${Status} run=${run} />
        <span class="muted">${run.step === null ? "no steps yet" : `step ${run.step}`}</span></li>`,
    )}</ul>`;
}

const placeOf = ({ step, run }, runs) =>
  [step === null ? "" : `step ${step}`, runs.length > 1 ? nameOf(runs[run]) : ""].filter(Boolean).join(" · ");

function Findings({ findings, runs }) {
  if (!findings.length) return null;
  return html`<ul class="shown-findings" aria-label="Findings">
    ${findings.map(
      (each, at) => html`<li key=${at}><${Severity} severity=${each.severity} />
      <span>${each.text}</span>
      <span class="muted">${placeOf(each, runs)}</span></li>`,
    )}</ul>`;
}

function Shown({ view: { runs, charts, findings, note, more } }) {
  return html`<main class="shown">
    <${Runs} runs=${runs} />
    <${Findings} findings=${findings} runs=${runs} />
    <div class="charts">${charts.map((chart) => html`<${Chart} key=${chart.key} chart=${chart} runs=${runs} />`)}</div>
    ${charts.length ? null : html`<p class="muted">No metrics yet.</p>`}
    ${more ? html`<p class="muted">and ${more} more metrics; name them: show(run, metrics=[...])</p>` : null}
    ${note ? html`<p class="muted" role="note">${note}</p>` : null}
  </main>`;
}

const root = /** @type {HTMLElement} */ (document.getElementById("shown")),
  here = /** @type {any} */ (globalThis);
here.showRuns = (view) => render(html`<${Shown} view=${view} />`, root);
here.showRuns(here.latestView ?? JSON.parse(document.getElementById("view")?.textContent || "{}"));
