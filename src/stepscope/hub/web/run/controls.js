// The controls over a run's charts.
import { html } from "../h.js";
import { change, href } from "../router.js";
import { count } from "../parts/format.js";
import { Search, Select, Switch, Toolbar } from "../parts/toolbar.js";
import { sayX } from "../charts/scales.js";
import { axisText } from "./axis.js";

// `flags`: how many alerts and events are flagged where there are more, else null.
export function Controls({ view, keys, run, shown, flags }) {
  const ranks = [...new Set(keys.flatMap((key) => key.ranks))].sort((a, b) => a - b);
  const again = keys.some((key) => key.attempts.length > 1);
  const along = keys.filter((key) => key.first_step !== null && !key.key.startsWith("stepscope/"));
  const axes = [
    ["step", "step"],
    ["relative", "time since start"],
    ["time", "wall time"],
    ...along.map(({ key }) => option(key)),
  ];
  if (!axes.some(([x]) => x === view.xText)) axes.push(option(view.xKey));
  return html`<div class="controls">
    <${Toolbar} label="Charts">
      <${Search} label="Find a metric" placeholder="Find a metric  /" value=${view.q}
          onChange=${(q) => change({ q })} />
      <${Select} label="x" hidden=${false} value=${view.xText}
          onChange=${(x) => change({ x: x === "step" ? null : x, from: null, to: null })} options=${axes} />
      <${Smoothing} value=${view.smooth} />
      <${Switch} label="log" title="A logarithmic y axis" on=${view.log} onChange=${(on) => change({ log: on })} />
      ${
        ranks.length > 1 &&
        html`<${Select} label="ranks" hidden=${false} value=${String(view.ranks)}
            onChange=${(rank) => change({ rank: rank === "all" ? null : rank })}
        options=${[
          ["all", "mean and range"],
          ["each", "each rank"],
          ...ranks.map((rank) => [String(rank), "rank " + rank]),
        ]} />`
      }
      ${
        again &&
        html`<${Switch} label="superseded" title="Show, in grey, what a later attempt did again" on=${view.ghosts}
        onChange=${(on) => change({ superseded: on ? null : "0" })} />`
      }
    <//>
    <span class="controls-note muted">
      ${view.window && html`<button type="button" class="button" onClick=${view.reset}>${zoomWords(view)} ✕</button>`}
      ${
        flags !== null &&
        view.x !== "metric" &&
        html`<a href=${href("logs", { run: run.id })}
            title="All of them are among the logs">Flags: the newest ${count(flags)} alerts and events</a>`
      }
      ${view.q && html`<span>${count(shown)} of ${count(keys.length)}</span>`}
    </span>
  </div>`;
}

// A metric as a choice of x; one that is called as the others are is told from them.
const option = (key) => [axisText(key), axisText(key) === key ? key : `${key} (metric)`];

function zoomWords({ window: [from, to], x }) {
  return `${from === null ? "…" : sayX(x, from)} to ${to === null ? "…" : sayX(x, to).replace("step ", "")}`;
}

function Smoothing({ value }) {
  return html`<label class="smoothing" title="Smoothing; the raw band stays visible">
    <span class="select-label">smooth</span>
    <input type="range" min="0" max="0.99" step="0.01" value=${value} aria-valuetext=${value ? String(value) : "off"}
      onInput=${(event) => change({ smooth: Number(event.target.value) || null })} />
    <output class="mono">${value ? value.toFixed(2) : "off"}</output></label>`;
}
