// The files of a run: media by step, and everything that was uploaded, logged as artifact or imported.
import { html, useEffect, useRef } from "../h.js";
import { get, runPath } from "../api.js";
import { change, useParam } from "../router.js";
import { useFetch, useDebounced } from "../use.js";
import { IconButton, Search } from "../parts/controls.js";
import { bytes, clock, count, ordinal } from "../parts/format.js";
import { Fetched, Empty } from "../parts/states.js";
import { FileShown, Media, Save } from "./media.js";

const PAGE = 200,
  MOST = 1000, // of one answer
  EVERY = 5000; // milliseconds between questions while the run goes on

export function Files({ id, going }) {
  const media = useFetch((signal) => get(runPath(id, "media"), {}, signal), [id]);
  const [q] = useParam("q");
  const [shown] = useParam("files", String(PAGE));
  const search = useDebounced(q, 200);
  const limit = Math.min(Number(shown) || PAGE, MOST);
  const files = useFetch((signal) => get(runPath(id, "files"), { q: search, limit }, signal), [id, search, limit]);
  useEffect(() => {
    const ask = () => {
      if (!document.hidden) [media, files].filter((each) => !each.loading).forEach((each) => each.reload());
    };
    const timer = going ? setInterval(ask, EVERY) : 0;
    return () => clearInterval(timer);
  }, [going, media.loading, files.loading]);
  return html`<div class="files">
    <${Fetched} fetched=${media} what="Loading media">${(found) => html`<${Media} id=${id} entries=${found.media} />
      ${found.more && html`<p class="muted">There are more media; these are the newest.</p>`}`}<//>
    <${Preview} id=${id} />
    <${Fetched} fetched=${files} what="Loading files">${(found) =>
      !found.total && !search
        ? html`<${Empty} title="No files">Media that are logged with <code>stepscope.Image</code> and the like appear here, images, tables
            and artifacts of W&B and MLflow clients, and media of imported TensorBoard runs.<//>`
        : html`<${List} id=${id} found=${found} q=${q} limit=${limit} />`}<//>
  </div>`;
}

function List({ id, found, q, limit }) {
  const { files, total, next } = found;
  return html`<section class="panel box" aria-label="Files">
    <header class="box-head"><h2>Files <span class="muted">${count(total)}, ${bytes(found.bytes)}</span></h2>
      <${Search} label="Find a file" placeholder="Find a file  /" value=${q} onChange=${(text) => change({ q: text })} /></header>
    <div class="box-body file-list" tabindex="0" role="region" aria-label="Table of files"><table class="plain">
      <thead><tr>
        <th>name</th><th>kind</th><th class="num">size</th><th class="num">step</th><th>time</th>
        <th><span class="sr">save</span></th></tr></thead>
      <tbody>${files.map(
        (file) => html`<tr key=${file.artifact + "/" + file.name}>
          <td><button type="button" class="file-name"
              onClick=${() => change({ file: file.name, artifact: file.artifact }, { replace: false })}>
              ${file.artifact && html`<span class="muted">${file.artifact} / </span>`}${shortName(file.name, file.artifact)}</button></td>
          <td>${file.kind}</td><td class="num">${bytes(file.bytes)}</td><td class="num">${ordinal(file.step)}</td>
          <td class="file-time">${clock(file.time)}</td><td><${Save} id=${id} file=${file} /></td></tr>`,
      )}</tbody></table>
      ${!files.length && html`<${Empty} title="No file matches" />`}
      ${
        next !== null &&
        (limit < MOST
          ? html`<button type="button" class="button" onClick=${() => change({ files: limit + PAGE })}>Show more</button>`
          : html`<p class="muted">The first ${count(MOST)} are shown; find others by name.</p>`)
      }
    </div></section>`;
}

// A logged file is named by its digest and its own name, of which the latter is shown.
const shortName = (name, artifact) => name.replace(/^media\/[0-9a-f]{64}\//, artifact ? "" : "media/");

// The file that the address names.
function Preview({ id }) {
  const [name] = useParam("file");
  const [artifact] = useParam("artifact");
  const fetched = useFetch(
    (signal) => (name ? get(runPath(id, "files"), { q: name, limit: MOST }, signal) : Promise.resolve(null)),
    [id, name],
  );
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => box.current?.scrollIntoView({ block: "nearest" }), [name, artifact, fetched.value]);
  if (!name) return null;
  const file = fetched.value?.files.find((each) => each.name === name && each.artifact === artifact);
  const close = () => change({ file: null, artifact: null });
  return html`<section class="panel box file-preview" ref=${box} aria-label=${`File ${name}`}>
    <header class="box-head"><h2>${artifact && html`<span class="muted">${artifact} / </span>`}${shortName(name, artifact)}</h2>
      <${IconButton} icon="close" label="Close the file" onClick=${close} /></header>
    <div class="media-body"><${Fetched} fetched=${fetched} what="Loading the file">${() =>
      file
        ? html`<${FileShown} key=${artifact + "/" + name} id=${id} file=${file} kind=${file.kind} />`
        : html`<${Empty} title="The run has no such file" />`}<//></div>
  </section>`;
}
