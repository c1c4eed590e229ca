// The menu of a chart: its own scale, smoothing and range of y, and what it shows as a picture or as a table.
import { html, useState } from "../h.js";
import { May, useAccess } from "../access.js";
import { href } from "../router.js";
import { colour } from "../theme.js";
import { IconMenu } from "../parts/controls.js";
import { escapeInvisible } from "../parts/invisible.js";

export function ChartMenu({ title, name, metric, plot, look, settings, onSettings, source }) {
  const set = (wanted) => onSettings(cleaned({ ...settings, ...wanted }));
  return html`<${IconMenu} icon="more" label=${`Settings of ${title}`} align="right">${(close) => html`
    <label><input type="checkbox" checked=${!!look.log}
        onChange=${(event) => set({ log: event.target.checked })} /> Logarithmic y axis</label>
    <label><input type="checkbox" checked=${!!look.values}
        onChange=${(event) => set({ values: event.target.checked })} /> Values below the chart</label>
    <label class="chart-menu-row"><span>Smoothing</span>
      <input type="range" min="0" max="0.99" step="0.01" value=${look.weight || 0}
          aria-valuetext=${look.weight ? String(look.weight) : "off"}
          onInput=${(event) => set({ weight: Number(event.target.value) })} /></label>
    <h3>Range of y</h3>
    <${Range} y=${look.y} onChange=${(y) => set({ y })} />
    ${metric && html`<${Elsewhere} metric=${metric} />`}
    <h3>Save</h3>
    <button type="button" class="item" onClick=${() => {
      close();
      savePicture(name, plot.current);
    }}>Picture (PNG)</button>
    <button type="button" class="item" onClick=${() => {
      close();
      save(`${fileName(name)}.csv`, new Blob([table(source.read().lines)], { type: "text/csv" }));
    }}>Values (CSV)</button>
    ${
      settings &&
      Object.keys(settings).length > 0 &&
      html`<button type="button" class="item" onClick=${() => {
        close();
        onSettings({});
      }}>Reset this chart</button>`
    }`}<//>`;
}

// Where else a metric can be looked at.
function Elsewhere({ metric }) {
  const statement = `SELECT r.id AS run, m.step AS step, m.value AS value
FROM metrics AS m INNER JOIN series AS s ON s.series = m.series INNER JOIN runs AS r ON r.run = s.run
WHERE s.key = '${metric.replace(/[\\']/g, "\\$&")}' ORDER BY step LIMIT 1000`;
  const { may, limit } = useAccess();
  if (limit && !may("admin")) return null;
  return html`<h3>Use</h3>
    <${May}>
      <a class="item" href=${href("dashboards", { new: 1, edit: 1, key: metric })}>New dashboard with it</a>
      <a class="item" href=${href("alerts", { tab: "rules", key: metric })}>Alert me when…</a><//>
    ${!limit && html`<a class="item" href=${href("sql", { q: statement })}>SQL</a>`}`;
}

const cleaned = (settings) => Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined));

function Range({ y, onChange }) {
  const kind = Array.isArray(y) ? "manual" : y === "robust" ? "robust" : "all";
  const [ends, setEnds] = useState(() =>
    Array.isArray(y) ? y.map((end) => (end === null ? "" : String(end))) : ["", ""],
  );
  const given = (next) => {
    setEnds(next);
    const read = next.map((text) => (text.trim() === "" || Number.isNaN(Number(text)) ? null : Number(text)));
    onChange(read.some((end) => end !== null) ? read : undefined);
  };
  return html`<label><input type="radio" name="y-range" checked=${kind === "all"}
        onChange=${() => onChange(undefined)} /> All values</label>
    <label><input type="radio" name="y-range" checked=${kind === "robust"}
        onChange=${() => onChange("robust")} /> Without outliers</label>
    <div class="chart-menu-ends"><span>From</span>
      ${["Least y", "Greatest y"].map(
        (label, at) => html`<input key=${label} type="text" inputmode="decimal" aria-label=${label} placeholder="auto"
          value=${ends[at]} onInput=${(event) => given(ends.map((old, i) => (i === at ? event.target.value : old)))} />
          ${at === 0 && html`<span>to</span>`}`,
      )}
    </div>`;
}

const fileName = (name) => name.replace(/[^\w.-]+/g, "_").slice(0, 100) || "chart";

function save(name, blob) {
  const link = document.createElement("a"),
    url = URL.createObjectURL(blob);
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const HEAD = 26; // pixels for the name over the picture

// The chart as it is drawn, with its name over it, on the ground of the theme.
function savePicture(name, plot) {
  if (!plot?.u) return;
  const from = plot.u.ctx.canvas,
    ratio = from.width / (plot.u.width || from.width),
    canvas = document.createElement("canvas"),
    ctx = canvas.getContext("2d");
  if (!ctx) return;
  canvas.width = from.width;
  canvas.height = from.height + HEAD * ratio;
  ctx.fillStyle = colour("--panel");
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.fillStyle = colour("--ink");
  ctx.font = `600 ${13 * ratio}px Inter, system-ui, sans-serif`;
  ctx.fillText(escapeInvisible(name), 12 * ratio, 18 * ratio);
  ctx.drawImage(from, 0, HEAD * ratio);
  canvas.toBlob((blob) => blob && save(`${fileName(name)}.png`, blob));
}

/**
 * Lines as CSV: one row for each mark.
 * @param {any[]} lines
 */
export function table(lines) {
  const rows = ["line,x,x_last,mean,min,max,count"];
  for (const line of lines) {
    if (line.ghost) continue;
    const { marks } = line;
    for (let i = 0; i < marks.length; i++) {
      const values = [marks.x[i], marks.last[i], marks.mid[i], marks.low[i], marks.high[i], marks.count[i]];
      rows.push([quotedCell(line.name), ...values.map((value) => value ?? "")].join(","));
    }
  }
  return rows.join("\n") + "\n";
}

// A text as a cell; one that a spreadsheet would take for a formula is marked as text.
function quotedCell(text) {
  const plain = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
}
