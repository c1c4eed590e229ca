// Settings against results over the visible runs: a scatter plot, parallel coordinates, and what each setting explains.
import { html, useMemo } from "../h.js";
import { get } from "../api.js";
import { go, href, useParam, useParams } from "../router.js";
import { useFetch, useSize } from "../use.js";
import { seriesColour } from "../theme.js";
import { highlight, useHighlighted } from "../charts/highlight.js";
import { Menu, Select, Toolbar } from "../parts/controls.js";
import { count, counted, number, percent, ticks } from "../parts/format.js";
import { Empty, Failure, Loading } from "../parts/states.js";
import { metricsOf, usualMetrics } from "../runs/columns.js";
import { reducedAmong } from "../runs/reduced.js";
import { importance, labelled, scaleOf, valueOf, varying } from "./relations.js";

const MOST = 1000, // runs
  MAX_AXES = 8,
  USUAL_AXES = 4,
  HEIGHT = 320,
  LINE = 13, // pixels between labels above each other, and beside each other
  DIGITS = 44,
  WORD = 76;

/** @typedef {{ top: number, right: number, bottom: number, left: number }} Edges */

export function Relations({ filter, visible, fields, styles }) {
  const [y, setY] = useParam("result");
  const [x, setX] = useParam("against");
  const [axes, setAxes] = useParams("axis");
  const metrics = fields.value?.metrics || [];
  const result = y || "best." + (usualMetrics(metrics)[0] ?? "loss");
  const asked = [result, x].filter(Boolean);
  const fetched = useFetch(
    (signal) =>
      get(
        "runs",
        { filter, metric: metricsOf(asked), column: reducedAmong(asked), archived: "show", limit: MOST },
        signal,
      ),
    [filter, asked.join("\n"), !fields.value],
  );
  const runs = useMemo(
    () => (fetched.value?.runs || []).filter((run) => visible.has(run.id)),
    [fetched.value, visible],
  );
  const settings = useMemo(() => varying(runs), [runs]);
  const weighed = useMemo(() => importance(runs, settings, result), [runs, settings, result]);
  if (fetched.error) return html`<${Failure} error=${fetched.error} reload=${fetched.reload} />`;
  if (!fetched.value) return html`<${Loading} what="Loading runs" />`;
  if (!runs.length) return html`<${Empty} title="No run is visible" />`;
  const leading = weighed.rows.map(({ path }) => path);
  const against = x || "config." + (leading[0] ?? settings[0] ?? "");
  const chosen = axes.length
    ? axes
    : (leading.length ? leading : settings).slice(0, USUAL_AXES).map((path) => "config." + path);
  const plain = [
    ["step", "step"],
    ["duration", "duration"],
    ["started", "start"],
    ["ranks", "ranks"],
  ];
  const ofMetrics = metrics.slice(0, 300).flatMap(({ name }) => [
    ["best." + name, `best ${name}`],
    ["metrics." + name, name],
  ]);
  const ofSettings = settings.map((path) => ["config." + path, path]);
  return html`<div class="controls"><${Toolbar} label="Relations">
      <${Select} label="Result" hidden=${false} value=${result} onChange=${setY} options=${withOwn(ofMetrics, result)} />
      <${Select} label="Against" hidden=${false} value=${against} onChange=${setX}
          options=${withOwn([...ofSettings, ...plain, ...ofMetrics], against)} />
      <${Menu} label=${`Axes ${chosen.length}`}><${Axes} options=${ofSettings} chosen=${chosen} onChange=${setAxes} /><//>
    <//><span class="controls-note muted">${counted(runs.length, "visible run")}</span></div>
    <div class="relations">
      <${Panel} title=${`${named(result)} against ${named(against)}`} wide=${false}>
        <${Scatter} runs=${runs} x=${against} y=${result} styles=${styles} /><//>
      <${Panel} title="What each setting explains" wide=${false}><${Weights} found=${weighed} result=${result} /><//>
      <${Panel} title="Parallel coordinates" wide><${Parallel} runs=${runs} fields=${[...chosen, result]} styles=${styles} /><//>
    </div>`;
}

const named = (field) => field.replace(/^(config|metrics)\./, "").replace(/^(best|min|max)\./, "$1 ");

const withOwn = (options, own) => (options.some(([id]) => id === own) ? options : [[own, named(own)], ...options]);

function Panel({ title, wide, children }) {
  return html`<section class=${"panel box" + (wide ? " wide" : "")} aria-label=${title}>
    <header class="box-head"><h2>${title}</h2></header>${children}</section>`;
}

function Axes({ options, chosen, onChange }) {
  const toggle = (id) => onChange(chosen.includes(id) ? chosen.filter((each) => each !== id) : [...chosen, id]);
  return html`<div class="chooser">${options.map(
    ([id, text]) => html`<label key=${id}><input type="checkbox" checked=${chosen.includes(id)}
      disabled=${!chosen.includes(id) && chosen.length >= MAX_AXES} onChange=${() => toggle(id)} />
      <span class="wide-name" title=${text}>${text}</span></label>`,
  )}
    ${!options.length && html`<p class="muted note-line">All visible runs have the same settings.</p>`}</div>`;
}

const labels = (scale) => (scale.kinds ? scale.ticks.map(String) : ticks(scale.ticks, number));
const placeOf = (scale, tick) => scale.at(tick) ?? 0.5;
const shortened = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
const describe = (run, fields) =>
  [run.name || run.id, ...fields.map((field) => `${named(field)} ${said(valueOf(run, field))}`)].join(" · ");
const said = (value) => (typeof value === "number" ? number(value) : (value ?? "–"));

function Scatter({ runs, x, y, styles }) {
  const [place, size] = useSize();
  const focus = useHighlighted();
  const known = runs.filter((run) => valueOf(run, x) !== undefined && Number.isFinite(valueOf(run, y)));
  const across = useMemo(() => scaleOf(known.map((run) => valueOf(run, x))), [runs, x, y]),
    along = useMemo(() => scaleOf(known.map((run) => valueOf(run, y))), [runs, x, y]);
  const edges = { top: 14, right: 18, bottom: 40, left: 58 },
    width = Math.max(size.width, 200);
  const toX = (value) => edges.left + 8 + (across.at(value) ?? 0.5) * (width - edges.left - edges.right - 16);
  const toY = (value) =>
    HEIGHT - edges.bottom - 8 - (along.at(value) ?? 0.5) * (HEIGHT - edges.top - edges.bottom - 16);
  const away = runs.length - known.length;
  return html`<div class="relation-plot" ref=${place}>
    ${
      !known.length
        ? html`<p class="muted relation-note">No visible run has both.</p>`
        : html`<svg width=${width} height=${HEIGHT} role="group"
          aria-label=${`${named(y)} against ${named(x)}, ${counted(known.length)}`}>
      ${labelled(along.ticks.map(toY), LINE).map(
        (at) => html`<g key=${at}><line class="relation-grid" x1=${edges.left} x2=${width - edges.right}
          y1=${toY(along.ticks[at])} y2=${toY(along.ticks[at])} />
          <text class="relation-tick" x=${edges.left - 6} y=${toY(along.ticks[at])} text-anchor="end"
            dominant-baseline="middle">${shortened(labels(along)[at], 9)}</text></g>`,
      )}
      ${labelled(across.ticks.map(toX), across.kinds ? WORD : DIGITS).map(
        (at) => html`<text key=${at} class="relation-tick" x=${toX(across.ticks[at])} y=${HEIGHT - edges.bottom + 16}
          text-anchor="middle">${shortened(labels(across)[at], 12)}</text>`,
      )}
      <text class="relation-name" x=${width - edges.right} y=${HEIGHT - 6} text-anchor="end">${named(x)}${across.log ? " (log)" : ""}</text>
      ${known.map(
        (run) => html`<a key=${run.id} href=${href("run", run.id)} aria-label=${describe(run, [x, y])}
          onPointerEnter=${() => highlight(run.id)} onPointerLeave=${() => highlight(null)}>
          <circle class=${"relation-point" + (focus && focus !== run.id ? " dim" : "")} cx=${toX(valueOf(run, x))}
            cy=${toY(valueOf(run, y))} r=${focus === run.id ? 7 : 4.5} fill=${seriesColour(styles.get(run.id) ?? 0)}>
            <title>${describe(run, [x, y])}</title></circle></a>`,
      )}</svg>`
    }
    ${away > 0 && html`<p class="muted relation-note">${count(away)} ${away === 1 ? "run has" : "runs have"} no value here.</p>`}
  </div>`;
}

function Parallel({ runs, fields, styles }) {
  const [place, size] = useSize();
  const focus = useHighlighted();
  const scales = useMemo(
    () => fields.map((field) => scaleOf(runs.map((run) => valueOf(run, field)))),
    [runs, fields.join("\n")],
  );
  const top = 34,
    bottom = 16,
    room = Math.max(size.width, fields.length * 96),
    gap = (room - 130) / Math.max(1, fields.length - 1);
  const toX = (at) => 60 + at * gap;
  const toY = (at, value) => HEIGHT - bottom - (placeOf(scales[at], value) || 0) * (HEIGHT - top - bottom);
  const path = (run) => {
    let text = "";
    fields.forEach((field, at) => {
      const value = valueOf(run, field);
      const there = value !== undefined && Number.isFinite(scales[at].at(value));
      if (there) text += `${text ? "L" : "M"}${toX(at).toFixed(1)} ${toY(at, value).toFixed(1)}`;
    });
    return text;
  };
  const ordered = focus ? [...runs].sort((a, b) => Number(a.id === focus) - Number(b.id === focus)) : runs;
  return html`<div class="relation-plot" ref=${place} tabindex="0" role="region" aria-label="Parallel coordinates of the visible runs">
    <svg width=${room} height=${HEIGHT} role="img" aria-label=${`${counted(runs.length)} over ${fields.map(named).join(", ")}`}>
      ${ordered.map(
        (
          run,
        ) => html`<path key=${run.id} class=${"relation-line" + (focus ? (focus === run.id ? " on" : " dim") : "")} d=${path(run)}
          stroke=${seriesColour(styles.get(run.id) ?? 0)} onPointerEnter=${() => highlight(run.id)}
          onPointerLeave=${() => highlight(null)} onClick=${() => go(href("run", run.id))}>
          <title>${describe(run, fields)}</title></path>`,
      )}
      ${fields.map(
        (field, at) => html`<g key=${field}>
        <line class="relation-axis" x1=${toX(at)} x2=${toX(at)} y1=${top} y2=${HEIGHT - bottom} />
        <text class="relation-name" x=${toX(at)} y=${top - 16} text-anchor="middle">${shortened(named(field), 18)}</text>
        ${labelled(
          scales[at].ticks.map((tick) => toY(at, tick)),
          LINE,
        ).map(
          (k) => html`<text key=${k} class="relation-tick haloed" x=${toX(at) + (at === fields.length - 1 ? 6 : -6)}
            y=${toY(at, scales[at].ticks[k])}
            text-anchor=${at === fields.length - 1 ? "start" : "end"}
            dominant-baseline="middle">${shortened(labels(scales[at])[k], 11)}</text>`,
        )}</g>`,
      )}</svg></div>`;
}

function Weights({ found, result }) {
  const { rows, runs } = found;
  if (!rows.length || runs < 3)
    return html`<p class="muted relation-note">Needs three runs with ${named(result)} and a setting that differs between them.</p>`;
  return html`<div class="box-body" tabindex="0" role="region" aria-label="What each setting explains">
    <table class="plain matrix relation-weights"><thead><tr><th scope="col">setting</th><th scope="col">values</th>
      <th scope="col">correlation</th><th scope="col">explains</th></tr></thead>
    <tbody>${rows.slice(0, 40).map(
      (row) => html`<tr key=${row.path}><th scope="row" class="mono">${row.path}</th><td>${count(row.kinds)}</td>
        <td class="mono">${row.sign === null ? "–" : number(row.sign, 2)}</td>
        <td><span class="relation-bar" style=${{ "--share": row.share }}></span> ${percent(row.share)}</td></tr>`,
    )}</tbody></table>
    <p class="muted relation-note">Of ${counted(runs)}, each setting alone: its share of the variance of the ranks of ${named(result)}.
      Settings that change together share it.</p></div>`;
}
