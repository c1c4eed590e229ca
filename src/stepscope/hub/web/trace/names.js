// What each name took in a trace: how often, how long, of its own, and on the critical path.
import { html, useMemo, useState } from "../h.js";
import { VirtualTable } from "../parts/table.js";
import { count, millis } from "../parts/format.js";
import { spanColour } from "./hues.js";
import { byName } from "./model.js";

export function NameTable({ trace, onSelect }) {
  const [sort, setSort] = useState("-critical");
  const all = useMemo(() => byName(trace), [trace]);
  const rows = useMemo(() => {
    const key = sort.replace("-", ""),
      sign = sort.startsWith("-") ? -1 : 1;
    return [...all].sort((a, b) => sign * (key === "name" ? a.name.localeCompare(b.name) : a[key] - b[key]));
  }, [all, sort]);
  const critical = all.reduce((sum, row) => sum + row.critical, 0) || 1;
  const columns = [
    {
      id: "name",
      title: "Name",
      width: "minmax(200px, 1.6fr)",
      sortable: "name",
      cell: (row) =>
        html`<span class="trace-dot" style=${{ background: spanColour(row.name) }}></span>
          <span title=${row.name}>${row.name}</span>`,
    },
    {
      id: "critical",
      title: "Critical path",
      width: "minmax(170px, 1fr)",
      sortable: "critical",
      cell: (row) =>
        html`<span class="trace-meter" aria-hidden="true">
          <span style=${{ width: (row.critical / critical) * 100 + "%", background: "var(--accent)" }}></span></span>
          <span class="trace-lasts">${millis(row.critical)}</span>`,
    },
    { id: "own", title: "Own time", width: "100px", align: "right", sortable: "own", cell: (row) => millis(row.own) },
    {
      id: "total",
      title: "Total",
      width: "100px",
      align: "right",
      sortable: "total",
      cell: (row) => millis(row.total),
    },
    { id: "count", title: "Spans", width: "84px", align: "right", sortable: "count", cell: (row) => count(row.count) },
    {
      id: "longest",
      title: "Longest",
      width: "100px",
      align: "right",
      sortable: "longest",
      cell: (row) => millis(row.longest),
    },
    {
      id: "errors",
      title: "Failed",
      width: "70px",
      align: "right",
      sortable: "errors",
      cell: (row) =>
        row.errors ? html`<span class="bad-text">✕ ${count(row.errors)}</span>` : html`<span class="muted">–</span>`,
    },
  ];
  return html`<${VirtualTable} label="Names in this trace" columns=${columns} rows=${rows}
      keyOf=${(row) => row.name} rowHeight=${28} sort=${sort} onSort=${setSort}
    onOpen=${(row) => onSelect(row.slowest)} />`;
}
