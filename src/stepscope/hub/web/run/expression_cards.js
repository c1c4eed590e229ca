// Charts of expressions of metrics in a run; the workspace of its project has the same ones.
import { html, useEffect, useMemo } from "../h.js";
import { count } from "../parts/format.js";
import { movableAmong } from "../parts/reorder.js";
import { ChartCard } from "../charts/card.js";
import { expressionSource } from "../dashboards/sources.js";
import { expressionKey } from "../workspace/expressions.js";

export function ExpressionCards({ run, list, onChange, view, look, wide, onWide, onStep }) {
  return html`<section class="chart-group" aria-label="Expressions">
    <h2 class="group-title">Expressions <span class="muted">${count(list.length)}</span></h2>
    <div class="charts">${list.map(
      (text) => html`<${Card} key=${text} run=${run} text=${text} view=${view} look=${look} onStep=${onStep}
          wide=${wide.includes(expressionKey(text))} onWide=${() => onWide(expressionKey(text))}
          movable=${movableAmong(text, text, list, list, onChange)} />`,
    )}</div>
  </section>`;
}

function Card({ run, text, view, look, wide, onWide, onStep, movable }) {
  const isOwnAxis = view.x !== "metric", // an expression has no value at that of another metric: it is drawn along steps
    x = isOwnAxis ? view.x : "step",
    { from, to } = isOwnAxis ? view.how : { from: null, to: null };
  const source = useMemo(() => expressionSource(run.id, [text], x, "", { from, to }), [run.id, text, x, from, to]);
  const mine = useMemo(
    () => (isOwnAxis ? look : { ...look, kind: "step", window: null, marker: null, flags: [] }),
    [look, isOwnAxis],
  );
  useEffect(() => source.stir(), [run.step, run.seen]);
  const open = (mark) => mine.kind === "step" && onStep(mark.line.marks.x[mark.i]);
  return html`<${ChartCard} title=${text} source=${source} look=${mine} group=${`run-${run.id}-${x}`} wide=${wide}
      onWide=${onWide} ...${movable} empty="This run has no step with all of its metrics"
      on=${isOwnAxis ? { zoom: view.zoom, reset: view.reset, pick: open } : { pick: open }} />`;
}
