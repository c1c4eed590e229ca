// Configurations side by side; what differs comes first.
import { html, useState } from "../h.js";
import { href } from "../router.js";
import { Folded, Switch } from "../parts/controls.js";
import { count, flat, lasting, plain } from "../parts/format.js";
import { Empty } from "../parts/states.js";

export function Diff({ runs }) {
  const [all, setAll] = useState(false);
  const rows = rowsOf(runs),
    differing = rows.filter((row) => row.differs);
  const shown = all ? rows : differing;
  return html`<div class="diff panel box">
    <header class="box-head"><h2>${count(differing.length)} of ${count(rows.length)} settings differ</h2>
      <${Switch} label="show equal settings" on=${all} onChange=${setAll} /></header>
    ${
      !shown.length
        ? html`<${Empty} title="These runs have the same configuration" />`
        : html`<div class="box-body" tabindex="0" role="region"
            aria-label="Settings of each run"><table class="plain matrix">
      <thead>
        <tr><th scope="col">setting</th>
          ${runs.map(
            (run) => html`<th scope="col" key=${run.id}><a href=${href("run", run.id)}>${run.name || run.id}</a></th>`,
          )}
        </tr>
      </thead>
      <tbody>${shown.map(
        (row) => html`<tr key=${row.path} class=${row.differs ? "differs" : ""}>
          <th scope="row" class="mono">${row.path}</th>
        ${row.values.map(
          (value, at) =>
            html`<td key=${at}
                class=${"mono" + (row.texts[at] !== row.common ? " changed" : "")}>
                  ${value === undefined ? html`<span class="muted">absent</span>` : html`<${Folded} text=${plain(value)} />`}</td>`,
        )}
        </tr>`,
      )}</tbody>
    </table></div>`
    }
  </div>`;
}

function rowsOf(runs) {
  const tables = runs.map(
    (run) =>
      new Map([
        ...flat(run.config),
        ["· commit", run.environment?.["git.commit"]?.slice(0, 12)],
        ["· ranks", run.ranks],
        ["· duration", lasting(run.duration)],
      ]),
  );
  const paths = [...new Set(tables.flatMap((table) => [...table.keys()]))];
  return paths
    .map((path) => {
      const values = tables.map((table) => table.get(path)),
        texts = values.map(distinctText);
      return { path, values, texts, differs: new Set(texts).size > 1, common: most(texts) };
    })
    .sort((a, b) => a.path.startsWith("·") - b.path.startsWith("·") || a.path.localeCompare(b.path));
}

// A text for each value: the number 1 is not the text "1", and every digit counts.
const distinctText = (value) =>
  value === undefined || typeof value === "string" ? JSON.stringify(value) : plain(value);

// The value that most runs have is the background against which others are changed.
function most(texts) {
  const amounts = new Map();
  for (const text of texts) amounts.set(text, (amounts.get(text) || 0) + 1);
  return [...amounts].sort((a, b) => b[1] - a[1])[0][0];
}
