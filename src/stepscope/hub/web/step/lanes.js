// When things happened: one lane for each rank, spans as bars, what everything waited for in full colour.
import { html } from "../h.js";
import { href } from "../router.js";
import { millis } from "../parts/format.js";
import { spanColour } from "../trace/hues.js";

const ROW = 15,
  MOST = 16,
  BARS = 400;

export function Lanes({ step, rank }) {
  if (!step.ranks.length) return null;
  const ranks = [...step.ranks]
    .sort((a, b) => (b.rank === rank) - (a.rank === rank) || b.critical - a.critical || a.rank - b.rank)
    .slice(0, MOST)
    .sort((a, b) => a.rank - b.rank);
  const longest = Math.max(...ranks.map((lane) => lane.duration_ms), 0.001);
  const spread = Math.max(...ranks.map((lane) => lane.offset_ms)) - Math.min(...ranks.map((lane) => lane.offset_ms));
  // Ranks that do not run in step are laid over each other from where each began.
  const aligned = spread > longest;
  const total = aligned ? longest : Math.max(...ranks.map((lane) => lane.offset_ms + lane.duration_ms), 0.001);
  return html`<section class="step-part" aria-label="Timeline">
    <header><h3>Timeline</h3>
      <span class="muted">
        ${
          aligned ? "each rank from its own start" : "all ranks on one clock"
        }; bright is what the step waited for</span>
    </header>
    <div class="lanes">
      ${ranks.map(
        (lane) =>
          html`<${Lane} key=${lane.rank} lane=${lane} total=${total} shift=${aligned ? lane.offset_ms : 0}
              at=${lane.rank === rank} />`,
      )}
      <div class="lane-scale muted"><span>0</span><span>${millis(total / 2)}</span><span>${millis(total)}</span></div>
    </div>
  </section>`;
}

function Lane({ lane, total, shift, at }) {
  const depth = Math.min(5, Math.max(...lane.spans.map((span) => span.depth)) + 1);
  const critical = new Set(lane.critical_path);
  const bars = lane.spans.filter((span) => span.depth < 5 && (span.duration_ms ?? 0) / total > 0.0008).slice(0, BARS);
  return html`<div class=${"lane" + (at ? " at" : "")}><span class="lane-name">rank ${lane.rank}</span>
    <div class="lane-bars" style=${{ height: depth * ROW + 2 + "px" }}>
      ${bars.map((span) => {
        const left = ((span.offset_ms - shift) / total) * 100,
          width = (span.duration_ms / total) * 100;
        const tone = span.status === "error" ? "var(--bad)" : spanColour(span.name);
        const own = critical.has(span.span_id) && span.critical_ms > 0.02 * span.duration_ms;
        return html`<a key=${span.span_id} class=${"bar" + (own ? " critical" : "")}
            href=${href("traces", { trace: span.trace_id, span: span.span_id })} tabindex="-1"
          title=${`${span.name}: ${millis(span.duration_ms)}${span.usual_ms ? `, usually ${millis(span.usual_ms)}` : ""}`}
          style=${{
            left: left + "%",
            width: Math.max(width, 0.15) + "%",
            top: span.depth * ROW + "px",
            "--tone": tone,
          }}>
            ${width > 9 ? span.name : ""}</a>`;
      })}
    </div></div>`;
}
