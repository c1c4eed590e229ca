// The result of a statement: a virtual table, a chart of its columns, and CSV.
import { html, useLayoutEffect, useMemo, useRef, useState } from "../h.js";
import { useSize } from "../use.js";
import { colour, seriesColour, useShownTheme } from "../theme.js";
import uPlot from "../vendor/uplot.js";
import { Select } from "../parts/controls.js";
import { Exact, spelled } from "../parts/exact.js";
import { Empty } from "../parts/states.js";
import { VirtualTable } from "../parts/table.js";

const text = (cell) => (cell === null ? "null" : typeof cell === "object" ? spelled(cell) : String(cell));
export const isNumber = (type) => /^(Nullable\()?(U?Int|Float|Decimal)/.test(type);

export function ResultTable({ answer }) {
  const [sort, setSort] = useState("");
  const rows = useMemo(() => sorted(answer, sort), [answer, sort]);
  const columns = answer.columns.map((column, at) => ({
    id: `${at}`,
    title: column.name,
    hint: `${column.name}: ${column.type}`,
    sortable: `${at}`,
    align: isNumber(column.type) ? "right" : "",
    width: at < answer.columns.length - 1 ? `${widest(answer, at)}px` : `minmax(${widest(answer, at)}px, max-content)`,
    cell: (row) =>
      html`<span class=${"sql-cell" + (row.cells[at] === null ? " muted" : "")}
          title=${text(row.cells[at])}>${text(row.cells[at]).slice(0, 300)}</span>`,
  }));
  if (!answer.rows.length)
    return html`<${Empty} title="No rows.">${(answer.hints || []).map((hint) => html`<p key=${hint}>${hint}</p>`)}<//>`;
  return html`<${VirtualTable} label="Rows" columns=${columns} rows=${rows} keyOf=${(row) => row.n} rowHeight=${26}
      sort=${sort} onSort=${setSort} />`;
}

function sorted(answer, sort) {
  const rows = answer.rows.map((cells, n) => ({ cells, n }));
  if (!sort) return rows;
  const at = Number(sort.replace("-", "")),
    sign = sort.startsWith("-") ? -1 : 1;
  const value = (row) => row.cells[at];
  return rows.sort((a, b) => {
    if (value(a) === null || value(b) === null) return Number(value(a) === null) - Number(value(b) === null);
    return (
      sign *
      (isFigure(value(a)) && isFigure(value(b))
        ? order(value(a), value(b))
        : text(value(a)).localeCompare(text(value(b)), undefined, { numeric: true }))
    );
  });
}

const isFigure = (cell) => typeof cell === "number" || cell instanceof Exact;

// Integers that no double can tell apart are compared digit by digit.
function order(a, b) {
  if (Number(a) !== Number(b) || !(a instanceof Exact || b instanceof Exact)) return a - b;
  const [one, other] = [BigInt(text(a)), BigInt(text(b))];
  return one < other ? -1 : one > other ? 1 : 0;
}

function widest(answer, at) {
  let most = answer.columns[at].name.length;
  for (let row = 0; row < Math.min(answer.rows.length, 60); row++)
    most = Math.max(most, text(answer.rows[row][at]).length);
  return Math.min(Math.max(most * 7.4 + 26, 70), 420);
}

// A chart of numeric columns over one of them, or over the row's number.
export function ResultChart({ answer }) {
  const numeric = answer.columns.map((column, at) => ({ ...column, at })).filter((column) => isNumber(column.type));
  const [x, setX] = useState("");
  const along = x === "" ? (numeric.length > 1 ? String(numeric[0].at) : "row") : x;
  const named = along === "row" ? "row number" : answer.columns[along].name;
  const [box, size] = useSize();
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const theme = useShownTheme();
  const lines = numeric.filter((column) => String(column.at) !== along).slice(0, 8);
  useLayoutEffect(() => {
    if (!size.width || !lines.length || !place.current) return undefined;
    const plot = new uPlot(options(size, named, lines), data(answer, along, lines), place.current);
    return () => plot.destroy();
  }, [answer, along, size.width, size.height, theme]);
  if (!lines.length) return html`<${Empty} title="No chart">A chart needs a column of numbers.<//>`;
  return html`<div class="sql-chart">
    <div class="toolbar">
      <${Select} label="x" hidden=${false} value=${along}
          options=${[["row", "row number"], ...numeric.map((column) => [String(column.at), column.name])]}
          onChange=${setX} />
      <span class="chart-legend">
        ${lines.map(
          (line, at) => html`<span key=${line.at}><i style=${{ background: seriesColour(at) }}></i>${line.name}</span>`,
        )}
      </span>
      </div>
    <div class="sql-plot" ref=${box}>
      <div ref=${place} role="img"
          aria-label=${`${lines.map((line) => line.name).join(", ")} over ${named}`}></div>
    </div>
  </div>`;
}

const real = (cell) => (cell === null ? null : Number.isFinite(Number(cell)) ? Number(cell) : null);

function data(answer, along, lines) {
  const rows = answer.rows
    .map((cells, n) => [along === "row" ? n + 1 : real(cells[along]), cells])
    .filter(([at]) => at !== null)
    .sort((a, b) => a[0] - b[0]);
  return [rows.map(([at]) => at), ...lines.map((line) => rows.map(([, cells]) => real(cells[line.at])))];
}

/** @returns {import("uplot").Options} */
function options({ width, height }, name, lines) {
  const axis = {
    stroke: () => colour("--axis"),
    font: "11px Inter, sans-serif",
    grid: { stroke: () => colour("--grid"), width: 1 },
    ticks: { show: false },
  };
  return {
    width,
    height: Math.max(height, 160),
    legend: { show: false },
    padding: [10, 14, 0, 0],
    scales: { x: { time: false } },
    axes: [
      { ...axis, label: name, labelFont: "11px Inter, sans-serif", labelSize: 18, size: 26 },
      { ...axis, size: 64 },
    ],
    series: [
      {},
      ...lines.map((line, at) => ({ label: line.name, stroke: seriesColour(at), width: 1.5, spanGaps: false })),
    ],
    cursor: { drag: { x: true, y: false } },
  };
}

// Rows as CSV: quoted where needed, and nothing that a spreadsheet would take for a formula.
export function asCsv(answer) {
  const cell = (value) => {
    let cell = value === null ? "" : text(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(cell) && !/^-?\d/.test(cell) && !/^-?Infinity$/.test(cell))
      cell = "'" + cell;
    return /[",\n\r]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
  };
  return (
    [answer.columns.map((column) => cell(column.name)), ...answer.rows.map((row) => row.map(cell))]
      .map((row) => row.join(","))
      .join("\r\n") + "\r\n"
  );
}

export function download(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
