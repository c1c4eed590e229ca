// The artifacts that a run made and used, with the runs at the other end.
import { html, useEffect } from "../h.js";
import { get, runPath } from "../api.js";
import { href } from "../router.js";
import { useFetch } from "../use.js";
import { bytes, clock, count, ordinal } from "../parts/format.js";

const EVERY = 10000; // milliseconds between questions while the run goes on

export function Artifacts({ run, going }) {
  const fetched = useFetch((signal) => get(runPath(run.id, "artifacts"), {}, signal), [run.id, run.status]);
  useEffect(() => {
    const timer = going ? setInterval(() => !document.hidden && fetched.reload(), EVERY) : 0;
    return () => clearInterval(timer);
  }, [going]);
  const found = fetched.value;
  if (!found || (!found.made.length && !found.used.length && !found.more)) return null;
  return html`<section class="panel box artifacts" aria-label="Artifacts">
    <header class="box-head"><h2>Artifacts${" "}
      <span class="muted">${count(found.made.length)} made, ${count(found.used.length)} used</span></h2></header>
    <div class="box-body" tabindex="0" role="region" aria-label="Table of artifacts"><table class="plain">
      <thead><tr><th></th><th>name</th><th>kind</th><th class="num">step</th><th class="num">size</th><th class="num">files</th>
        <th>time</th><th>other runs</th><th>path</th></tr></thead>
      <tbody>
        ${found.used.map(
          (
            each,
            at,
          ) => html`<tr key=${"used" + at}><td class="muted">used</td><td>${nameOf(each)}</td><td>${each.kind}</td>
            <td></td><td></td><td></td><td class="nowrap">${clock(each.time)}</td>
            <td>${each.made_by ? html`from <a href=${href("run", each.made_by)}>${each.made_by}</a>` : ""}</td>
            <td class="mono checkpoint-path">${each.path}</td></tr>`,
        )}
        ${found.made.map((each) => html`<${Made} key=${each.id} id=${run.id} made=${each} />`)}
      </tbody></table></div>
    ${found.more && html`<p class="note">The project has more records of artifacts than are read; the newest are missing.</p>`}
  </section>`;
}

const nameOf = ({ name, version }) => (version && name ? `${name}:${version}` : name || "–");

function Made({ id, made }) {
  const name = nameOf(made);
  const files = made.copied
    ? html`<a href=${href("run", id) + `?tab=files&q=${encodeURIComponent(name)}`}>${name}</a>`
    : name;
  return html`<tr><td class="muted">made</td>
    <td>${files}${made.aliases.map((alias) => html` <span class="muted" key=${alias}>${alias}</span>`)}</td>
    <td>${made.kind}</td><td class="num">${ordinal(made.step)}</td>
    <td class="num">${made.bytes === null ? "–" : bytes(made.bytes)}${
      made.complete === false &&
      html`<span class="warn-text" title="Some files could not be read, or there were too many"> ?</span>`
    }</td>
    <td class="num">${made.files === null ? "–" : count(made.files)}${
      made.copied_files !== null &&
      html`<small class=${made.failed_files ? "warn-text" : "muted"} title="Files that were copied, and those that were not">
        ${` ${count(made.copied_files)} copied`}${made.failed_files ? `, ${count(made.failed_files)} not` : ""}</small>`
    }</td><td class="nowrap">${clock(made.time)}</td>
    <td>${made.used_by.map((user, at) => html`${at ? ", " : "used by "}<a key=${user} href=${href("run", user)}>${user}</a>`)}
      ${made.users > made.used_by.length && html`<span class="muted"> and ${count(made.users - made.used_by.length)} more</span>`}</td>
    <td class="mono checkpoint-path" title=${made.manifest ? `manifest ${made.manifest}` : undefined}>${made.path || "–"}</td></tr>`;
}
