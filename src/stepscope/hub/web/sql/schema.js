// The tables that may be asked, their columns and sizes; a click puts a name where the cursor is.
import { html, useState } from "../h.js";
import { Icon } from "../parts/icons.js";
import { count } from "../parts/format.js";
import { Failure } from "../parts/states.js";

export function Schema({ asked, onInsert }) {
  const [open, setOpen] = useState({ metrics: false });
  const tables = asked.value?.tables || [];
  return html`<nav class="sql-schema panel" aria-label="Tables">
    <h2>Tables</h2>
    ${
      asked.error
        ? html`<${Failure} error=${asked.error} again=${asked.again} />`
        : !asked.value
          ? html`<p class="muted">Reading…</p>`
          : html`<ul>${tables.map(
              (table) => html`<li key=${table.name}>
      <div class="sql-table">
        <button type="button" class="sql-open" aria-expanded=${String(!!open[table.name])}
            onClick=${() => setOpen({ ...open, [table.name]: !open[table.name] })} title=${table.text}>
        <${Icon} name=${open[table.name] ? "down" : "right"} size=${10} /><span>${table.name}</span>
          <span class="muted">${count(table.rows, { brief: true })}</span></button>
        </div>
      ${
        open[table.name] &&
        html`<p class="sql-words">${table.text}</p><ul class="sql-columns">${table.columns.map(
          (column) => html`<li key=${column.name}>
        <button type="button" onClick=${() => onInsert(column.name)}
            title=${`Insert ${column.name}`}><span>${column.name}</span>
              <span class="muted">${brief(column.type)}</span></button>
        </li>`,
        )}</ul>`
      }
    </li>`,
            )}</ul>`
    }
  </nav>`;
}

const brief = (type) => type.replace(/AggregateFunction\((\w+),.*\)/, "state of $1");
