// A table that draws only the rows in sight, so ten thousand cost what thirty do.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../h.js";
import { useSize } from "../use.js";

const SPARE = 8;

// columns: [{ id, title, width, align, cell(row), sortable, head }]. Widths are CSS lengths of a grid.
// Another `question` or `sort` scrolls to the top. onOpen(row) is called on Enter or a click, onPoint(row) when the pointer
// is over it, with null when it leaves.
export function VirtualTable({
  label,
  columns,
  rows,
  keyOf,
  question,
  rowHeight = 34,
  onOpen,
  sort,
  onSort,
  onSeen,
  rowClass,
  onToggle,
  onPoint,
}) {
  const [box, size] = useSize();
  const [top, setTop] = useState(0);
  const [active, setActive] = useState(0);
  const first = Math.max(0, Math.floor(top / rowHeight) - SPARE);
  const last = Math.min(rows.length, Math.ceil((top + size.height) / rowHeight) + SPARE);
  const shown = rows.slice(first, last);
  // Rows that leave on one side come back on the other: the elements stay, only their text changes.
  const slots = Math.max(64, last - first);
  const template = columns.map((column) => column.width || "minmax(80px, 1fr)").join(" ");
  const wanted = useRef(false);

  const view = `${question ?? ""}\n${sort ?? ""}`,
    before = useRef(view);
  useLayoutEffect(() => {
    if (before.current === view) return;
    before.current = view;
    box.current.scrollTop = 0;
    setTop(0);
    setActive(0);
  }, [view]);
  useEffect(() => {
    onSeen?.(shown);
  }, [first, last, rows]);
  useEffect(() => {
    if (active >= rows.length) setActive(Math.max(0, rows.length - 1));
  }, [rows.length]);
  useLayoutEffect(() => {
    const row = wanted.current && box.current.querySelector(`[data-row="${active}"]`);
    if (!row) return;
    wanted.current = false;
    row.focus({ preventScroll: true });
  });

  function move(to) {
    const next = Math.max(0, Math.min(rows.length - 1, to));
    const body = box.current,
      head = body.querySelector(".vt-head").offsetHeight;
    if (next * rowHeight < body.scrollTop) body.scrollTop = next * rowHeight;
    else if ((next + 1) * rowHeight > body.scrollTop + size.height - head)
      body.scrollTop = (next + 1) * rowHeight - size.height + head;
    wanted.current = true;
    setTop(body.scrollTop);
    setActive(next);
  }

  function keys(event) {
    if (event.target.closest("input, a, button") && event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const here = Number(event.target.closest("[data-row]")?.dataset.row ?? active);
    const page = Math.max(1, Math.floor(size.height / rowHeight) - 2);
    const jump = {
      ArrowDown: here + 1,
      ArrowUp: here - 1,
      PageDown: here + page,
      PageUp: here - page,
      Home: 0,
      End: rows.length - 1,
    };
    if (event.key in jump) {
      event.preventDefault();
      move(jump[event.key]);
    } else if (event.key === "Enter" && rows[here]) {
      event.preventDefault();
      onOpen?.(rows[here]);
    } else if (event.key === " " && onToggle && rows[here]) {
      event.preventDefault();
      onToggle(rows[here]);
    }
  }

  return html`<div class="vt" role="grid" aria-label=${label} aria-rowcount=${rows.length + 1} ref=${box}
      onKeyDown=${keys}
      tabindex=${rows.length ? undefined : 0} onScroll=${(event) => setTop(event.currentTarget.scrollTop)}>
    <div class="vt-inner" role="presentation">
      <div class="vt-head" role="row" style=${{ gridTemplateColumns: template }}>
        ${columns.map((column) => html`<${Head} key=${column.id} column=${column} sort=${sort} onSort=${onSort} />`)}
      </div>
      <div class="vt-body" role="rowgroup" style=${{ height: rows.length * rowHeight + "px" }}>
        ${shown.map(
          (row, at) => html`<div class=${"vt-row " + (rowClass?.(row) || "")} role="row" key=${(first + at) % slots}
              data-id=${keyOf(row)} data-row=${first + at}
            aria-rowindex=${first + at + 2} tabindex=${first + at === active ? 0 : -1}
            style=${{
              gridTemplateColumns: template,
              height: rowHeight + "px",
              transform: `translateY(${(first + at) * rowHeight}px)`,
            }}
            onPointerEnter=${onPoint && (() => onPoint(row))} onPointerLeave=${onPoint && (() => onPoint(null))}
            onFocus=${() => setActive(first + at)}
            onClick=${(event) => {
              if (!event.target.closest("input, a, button, label")) onOpen?.(row);
            }}>
          ${columns.map(
            (column) =>
              html`<div class=${"vt-cell " + (column.align || "")} role="gridcell"
                  key=${column.id}>${column.cell(row)}</div>`,
          )}
        </div>`,
        )}
      </div>
    </div>
  </div>`;
}

function Head({ column, sort, onSort }) {
  const mine = sort?.replace(/^-/, "") === column.sortable;
  const down = sort?.startsWith("-");
  const order = !mine ? "none" : down ? "descending" : "ascending";
  const inside = column.head || column.title;
  return html`<div class=${"vt-cell " + (column.align || "")} role="columnheader"
      aria-sort=${column.sortable ? order : undefined} title=${column.hint || column.title}>
    ${
      column.sortable && onSort
        ? html`<button type="button" class=${"vt-sort" + (mine ? " on" : "")}
            onClick=${() => onSort(mine && down ? column.sortable : "-" + column.sortable)}>
          ${inside}<span class="vt-arrow" aria-hidden="true">${mine ? (down ? "↓" : "↑") : ""}</span></button>`
        : inside
    }
  </div>`;
}
