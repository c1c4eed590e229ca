// Media of a run by the name they were logged under: images, sounds, videos, tables and texts, with a slider over steps.
import { html, useEffect, useState } from "../h.js";
import { address, get, runPath } from "../api.js";
import { useFetch } from "../use.js";
import { IconButton } from "../parts/controls.js";
import { clock, count, plain } from "../parts/format.js";
import { Empty } from "../parts/states.js";
import { TableChart } from "./chart.js";
import { Layered } from "./layers.js";

const ROWS = 25; // of a table on one page
const MANY = 60; // images that are shown at one step

/**
 * The address of a file's content.
 * @param {string} id
 * @param {{ name: string, artifact?: string }} file
 */
const contentOf = (id, { name, artifact }, download = false) =>
  address(runPath(id, "files/content"), { name, artifact, download: download ? "1" : null });

export function Media({ id, entries }) {
  const keys = new Map();
  for (const entry of entries) keys.set(entry.key, [...(keys.get(entry.key) || []), entry]);
  return html`<div class="media">
    ${[...keys].map(([key, list]) => html`<${MediaCard} key=${key} id=${id} name=${key} entries=${list} />`)}</div>`;
}

// One name: what was logged at the step that the slider is at, the last one first.
function MediaCard({ id, name, entries }) {
  const last = entries.length - 1;
  const [at, setAt] = useState(/** @type {number | null} */ (null));
  const index = Math.min(at ?? last, last),
    entry = entries[index];
  const words = placeOf(entry);
  const table = entry.kind === "table";
  return html`<section class=${"panel media-card" + (table ? " wide" : "")} aria-label=${name} data-media=${name}>
    <header class="box-head"><h2>${name}</h2><span class="muted media-place">${words}</span></header>
    <div class="media-body"><${Shown} key=${table ? name : index} id=${id} entry=${entry} /></div>
    ${
      last > 0 &&
      html`<footer class="media-steps">
        <${IconButton} icon="left" label=${`Earlier ${name}`} disabled=${index === 0} onClick=${() => setAt(index - 1)} />
        <input type="range" min="0" max=${last} value=${index} aria-label=${`Step of ${name}`} aria-valuetext=${words}
          onInput=${(event) => setAt(Number(event.target.value) === last ? null : Number(event.target.value))} />
        <${IconButton} icon="right" label=${`Later ${name}`} disabled=${index === last}
            onClick=${() => setAt(index + 1 === last ? null : index + 1)} />
        <span class="muted">${index + 1} of ${count(entries.length)}</span>
      </footer>`
    }
  </section>`;
}

function placeOf({ step, time, rank, attempt }) {
  const where = step === null ? clock(time) : `step ${step}`;
  return where + (rank ? `, rank ${rank}` : "") + (attempt > 1 ? `, attempt ${attempt}` : "");
}

function Shown({ id, entry: { kind, files, text, chart } }) {
  if (chart) return files.map((file) => html`<${TableChart} key=${file.name} id=${id} file=${file} chart=${chart} />`);
  if (kind === "text") return html`<pre class="media-text" tabindex="0">${text}</pre>`;
  if (kind === "image") return html`<${Images} id=${id} files=${files} />`;
  return files.map(
    (file, at) =>
      html`<${FileShown} key=${at} id=${id} file=${{ ...file, artifact: "" }} kind=${kind} caption=${file.caption} />`,
  );
}

function Images({ id, files }) {
  return html`<div class="media-images">
    ${files.slice(0, MANY).map(
      (file, at) => html`<figure key=${at}><${Layers} id=${id} file=${file}>
      <${Picture} id=${id} file=${file} /><//>
      ${file.caption && html`<figcaption>${file.caption}</figcaption>`}</figure>`,
    )}
    ${files.length > MANY && html`<p class="muted">and ${count(files.length - MANY)} more, in the list of files</p>`}
  </div>`;
}

// One image; what is too large or damaged can be saved.
function Picture({ id, file }) {
  const [failed, setFailed] = useState(false);
  const content = contentOf(id, file);
  if (failed)
    return html`<div><p class="media-name">${file.caption || file.name.split("/").pop()} <${Save} id=${id} file=${file} /></p>
      <p class="muted">This image cannot be shown.</p></div>`;
  return html`<a href=${content} target="_blank" rel="noreferrer">
    <img src=${content} alt=${file.caption || file.name} loading="lazy" decoding="async" onError=${() => setFailed(true)} /></a>`;
}

const Layers = ({ id, file, children }) =>
  file.layers?.length
    ? html`<${Layered} file=${file} source=${(name) => contentOf(id, { name })}>${children}<//>`
    : children;

// One file as what it is. HTML is in a frame that runs no scripts and loads nothing from elsewhere; text and what else a
// browser might run is shown as text, and what cannot be shown can be saved.
export function FileShown({ id, file, kind, caption = null }) {
  const content = contentOf(id, file);
  if (kind === "image" || /\.gif$/i.test(file.name))
    return html`<${Images} id=${id} files=${[{ ...file, caption }]} />`;
  const name = html`<p class="media-name">${caption || file.name.split("/").pop()} <${Save} id=${id} file=${file} /></p>`;
  if (kind === "audio") return html`<div>${name}<audio controls preload="none" src=${content}></audio></div>`;
  if (kind === "video") return html`<div>${name}<video controls preload="metadata" src=${content}></video></div>`;
  if (kind === "table") return html`<${Table} id=${id} file=${file} />`;
  if (kind === "html")
    return html`<div>${name}<iframe class="media-page" sandbox="" loading="lazy" referrerpolicy="no-referrer"
      title=${caption || file.name.split("/").pop()} src=${content + "&page=1"}></iframe></div>`;
  if (kind === "binary") return html`<div>${name}<p class="muted">This file has no preview.</p></div>`;
  return html`<div>${name}<${Text} id=${id} file=${file} /></div>`;
}

export const Save = ({ id, file }) =>
  html`<a href=${contentOf(id, file, true)} download=${file.name.split("/").pop()}>Download</a>`;

function Text({ id, file: { name, artifact } }) {
  const fetched = useFetch(
    (signal) => get(runPath(id, "files/text"), { name, artifact }, signal),
    [id, name, artifact],
  );
  if (fetched.error) return html`<p class="muted">This file has no preview.</p>`;
  if (!fetched.value) return html`<p class="muted">Loading…</p>`;
  return html`<pre class="media-text" tabindex="0">${fetched.value.text}</pre>
    ${fetched.value.cut && html`<p class="muted">Only the start is shown; the file has ${count(fetched.value.bytes)} bytes.</p>`}`;
}

// A table page by page. Its copy in an artifact is preferred: images of cells lie beside that one.
function Table({ id, file }) {
  const [offset, setOffset] = useState(0);
  useEffect(() => setOffset(0), [id, file.name, file.artifact]);
  const read = (from, signal) =>
    get(runPath(id, "files/table"), { name: from.name, artifact: from.artifact, limit: ROWS, offset }, signal).then(
      (table) => ({ table, from }),
    );
  const fetched = useFetch(
    (signal) => (file.copy ? read(file.copy, signal).catch(() => read(file, signal)) : read(file, signal)),
    [id, file.name, file.artifact, offset],
  );
  if (fetched.error) return html`<p class="muted">${fetched.error.message} <${Save} id=${id} file=${file} /></p>`;
  if (!fetched.value) return html`<p class="muted">Loading the table…</p>`;
  const { table, from } = fetched.value;
  if (!table.columns.length) return html`<${Empty} title="An empty table" />`;
  const end = Math.min(offset + ROWS, table.total);
  return html`<div class="media-table" tabindex="0" role="region" aria-label=${`Table ${file.name}`}><table class="plain">
      <thead><tr>
        ${table.columns.map((column, at) => html`<th key=${at} class=${isNumeric(table, at) ? "num" : ""}>${column}</th>`)}</tr></thead>
      <tbody>${table.rows.map(
        (row, at) =>
          html`<tr key=${offset + at}>${row.map(
            (cell, n) => html`<td key=${n} class=${typeof cell === "number" ? "num" : ""}>
            <${Cell} id=${id} cell=${cell} from=${from} /></td>`,
          )}</tr>`,
      )}</tbody></table></div>
    <footer class="media-steps">
      <${IconButton} icon="left" label="Earlier rows" disabled=${!offset} onClick=${() => setOffset(Math.max(0, offset - ROWS))} />
      <${IconButton} icon="right" label="Later rows" disabled=${table.next === null} onClick=${() => setOffset(offset + ROWS)} />
      <span class="muted">${table.total ? `rows ${offset + 1} to ${end} of ${count(table.total)}` : "no rows"}</span>
      <${Save} id=${id} file=${file} /></footer>`;
}

const isNumeric = ({ rows }, at) => rows.some((row) => typeof row[at] === "number");

function Cell({ id, cell, from }) {
  if (cell && typeof cell === "object" && typeof cell.path === "string" && /image/.test(cell._type)) {
    const file = { name: cell.path, artifact: from.artifact };
    return html`<img class="cell" src=${contentOf(id, file)} alt=${cell.caption || cell.path} loading="lazy" />`;
  }
  return plain(cell);
}
