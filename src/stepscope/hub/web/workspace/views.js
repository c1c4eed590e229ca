// Saved views of a project: open one, save what is shown, rename, make it the default, delete.
import { html, useEffect, useState } from "../h.js";
import { May, useAccess } from "../access.js";
import { address, fetchJson, get } from "../api.js";
import { change, go, href, useRoute } from "../router.js";
import { useFetch } from "../use.js";
import { IconButton, Menu } from "../parts/controls.js";
import { Confirm, toast } from "../parts/overlays.js";
import { Failure, Loading } from "../parts/states.js";
import { viewQuery } from "./state.js";

const WITHOUT = "none"; // the address of a project that has a default view, without it

/** @typedef {{ id: string, name: string, query: string, default: boolean }} View */

// The address of a view: what it keeps, and its id.
function addressOf(project, view) {
  const query = new URLSearchParams(view.query);
  query.set("view", view.id);
  return href("project", project, query);
}

const send = (method, project, id, body) =>
  fetchJson(address(id ? `views/${id}` : "views", { project }), {
    method,
    headers: { "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
  });

// A project that is opened without anything else opens with its default view.
export function Opening({ project, children }) {
  const { query } = useRoute();
  const bare = query.toString() === "";
  const fetched = useFetch(
    (signal) => (bare ? get("views", { project }, signal) : Promise.resolve(null)),
    [project, bare],
  );
  const found = bare ? fetched.value?.views.find((each) => each.default) : undefined;
  useEffect(() => {
    if (found) go(addressOf(project, found), { replace: true });
  }, [found]);
  if (bare && fetched.error) return html`<${Failure} error=${fetched.error} reload=${fetched.reload} />`;
  if (bare && (found || !fetched.value)) return html`<${Loading} what="Loading the project" />`;
  return children;
}

export function Views({ project }) {
  const { query } = useRoute();
  const fetched = useFetch((signal) => get("views", { project }, signal), [project]);
  const views = /** @type {View[]} */ (fetched.value?.views || []);
  const [doomed, setDoomed] = useState(/** @type {View | null} */ (null));
  const { may } = useAccess();
  const current = views.find((each) => each.id === query.get("view"));
  const now = viewQuery(query, project),
    changed = current && now !== current.query;
  const act = async (what, words) => {
    try {
      const made = await what();
      toast(words);
      fetched.reload();
      return made;
    } catch (error) {
      toast(error.message, { bad: true });
      return null;
    }
  };
  const save = async (name) => {
    const made = await act(() => send("POST", project, "", { name, query: now }), `Saved as ${name}.`);
    if (made) change({ view: made.id });
    return made;
  };
  const edit = (view, wanted, words) => act(() => send("PATCH", project, view.id, wanted), words);
  return html`<${Menu} label=${current ? current.name + (changed ? " •" : "") : "Views"} align="right"
      title=${changed ? "This view, changed" : "Saved views of this project"}>${(close) => html`<div class="views">
      ${
        !views.length &&
        html`<p class="muted note-line">No view is saved. A view keeps the filter, groups, order, columns,
        pinned charts and their settings.</p>`
      }
      ${views.map(
        (view) => html`<${Row} key=${view.id} project=${project} view=${view} here=${view === current} close=${close}
          onRename=${(name) => edit(view, { name }, `Renamed to ${name}.`)}
          onDefault=${() =>
            edit(
              view,
              { default: !view.default },
              view.default ? "The project opens without a view." : `The project opens with ${view.name}.`,
            )}
          onDelete=${() => {
            close();
            setDoomed(view);
          }} />`,
      )}
      ${
        (current || views.some((each) => each.default)) &&
        html`<a class="item" href=${href("project", project, { view: WITHOUT })} onClick=${close}>Without a view</a>`
      }
      ${
        changed &&
        may("admin") &&
        html`<button type="button" class="item" onClick=${() => {
          close();
          edit(current, { query: now }, `Saved ${current.name}.`);
        }}>Save changes to ${current.name}</button>`
      }
      <${May}><${Naming} label="Save view" placeholder="Name of the view" onName=${async (name) => {
        if (await save(name)) close();
      }} /><//></div>`}<//>
    ${
      doomed &&
      html`<${Confirm} title=${`Delete the view ${doomed.name}?`} action="Delete" onClose=${() => setDoomed(null)}
          act=${() => send("DELETE", project, doomed.id).then(fetched.reload)}>
      <p>It is deleted for everybody who uses this hub. Runs are not affected.</p><//>`
    }`;
}

function Row({ project, view, here, close, onRename, onDefault, onDelete }) {
  const [renaming, setRenaming] = useState(false);
  if (renaming)
    return html`<${Naming} label="Rename" start=${view.name} placeholder="Name of the view" onName=${async (name) => {
      if (await onRename(name)) setRenaming(false);
    }} />`;
  return html`<div class="view-row">
    <a class="item" href=${addressOf(project, view)} aria-current=${here ? "true" : undefined} onClick=${close}>${view.name}</a>
    <${May}><${IconButton} icon="star" on=${view.default} label=${`Open the project with ${view.name}`} onClick=${onDefault} />
    <${IconButton} icon="pencil" label=${`Rename ${view.name}`} onClick=${() => setRenaming(true)} />
    <${IconButton} icon="close" label=${`Delete ${view.name}`} onClick=${onDelete} /><//>
  </div>`;
}

function Naming({ label, start = "", placeholder, onName }) {
  const [name, setName] = useState(start);
  return html`<form class="view-name" onSubmit=${(event) => {
    event.preventDefault();
    if (name.trim()) onName(name.trim());
  }}>
    <input type="text" aria-label=${placeholder} placeholder=${placeholder} maxlength="100" value=${name}
        onInput=${(event) => setName(event.target.value)} />
    <button class="button" disabled=${!name.trim()}>${label}</button></form>`;
}
