// The button that shares a run or a project: a link that shows it alone, to read only, until it ends; the links that there are.
import { html, useState } from "../h.js";
import { useAccess } from "../access.js";
import { address, fetchJson, get, post } from "../api.js";
import { route } from "../router.js";
import { useFetch } from "../use.js";
import { Code, Select } from "../parts/controls.js";
import { clock } from "../parts/format.js";
import { act, Dialog } from "../parts/overlays.js";

const LASTS = [
  ["1d", "one day"],
  ["7d", "7 days"],
  ["30d", "30 days"],
  ["365d", "a year"],
];

/** @param {{ run?: string, project?: string, name: string }} given the run or the project */
export function Share({ run, project, name }) {
  const [open, setOpen] = useState(false);
  const access = useAccess();
  if (access.limit === "run") return null;
  const what = run ? { run } : { project };
  return html`<button type="button" class="button" onClick=${() => setOpen(true)}>Share…</button>
    ${
      open &&
      html`<${Dialog} title=${`Share ${name}`} onClose=${() => setOpen(false)}>
        ${access.may("admin") && !access.open ? html`<${Links} what=${what} />` : html`<${Address} open=${access.open} />`}
        <div class="dialog-actions"><button type="button" class="button" onClick=${() => setOpen(false)}>Close</button></div>
      <//>`
    }`;
}

// Where no link can be made, the address of the page is what there is to share.
function Address({ open }) {
  return html`<div class="dialog-text">
      <p>${open ? "Everybody who reaches this hub can read all of it" : "Whoever has a token of this hub can open it"}, so the
        address of the page is the link:</p></div>
    <${Code} text=${location.href} /><${Loopback} />
    <p class="muted">${
      open
        ? html`On a hub with tokens a link can show one run or project only. The first one is made by${" "}
          <code>stepscope hub token create --scope admin</code>; from then on everybody needs a token or a link.`
        : "Links that need no token are made with a token of the scope admin."
    }</p>`;
}

// An address of this machine is nothing to send to others.
function Loopback() {
  if (!/^(localhost|127\.|\[::1\])/.test(location.hostname)) return null;
  return html`<p class="warn-text">This address works on this machine only: open the page by its name in the network first.</p>`;
}

function Links({ what }) {
  const [lasts, setLasts] = useState("7d");
  const [made, setMade] = useState(""),
    [state, setState] = useState({ busy: false, error: "" });
  const fetched = useFetch(
    (signal) => get("shares", what, signal).then(({ links }) => links),
    [what.run, what.project],
  );
  const make = async (event) => {
    event.preventDefault();
    setState({ busy: true, error: "" });
    try {
      const { path } = await post("shares", {
        kind: what.run ? "run" : "project",
        id: what.run ?? what.project,
        for: lasts,
      });
      setMade(location.href.split("#")[0] + withView(path));
      setState({ busy: false, error: "" });
      fetched.reload();
    } catch (error) {
      setState({ busy: false, error: error.message });
    }
  };
  const revoke = (id) =>
    act(() => fetchJson(address(`shares/${id}`), { method: "DELETE" }), "Link revoked.", fetched.reload);
  const links = fetched.value ?? [];
  return html`<form class="share-form" onSubmit=${make}>
      <p class="dialog-text">Whoever has the link sees this ${what.run ? "run" : "project"} as it is shown now, and nothing else of
        the hub; nothing can be changed.</p>
      <div class="share-make">
        <${Select} label="It ends after" hidden=${false} value=${lasts} options=${LASTS} onChange=${setLasts} />
        <button class="button primary" disabled=${state.busy}>Make a link</button></div>
      ${state.error && html`<p class="bad-text" role="alert">${state.error}</p>`}
    </form>
    ${
      made &&
      html`<div role="status"><${Code} text=${made} label="Copy link" /></div>
        <p class="muted">It is shown only once.</p><${Loopback} />`
    }
    ${fetched.error && html`<p class="bad-text" role="alert">${fetched.error.message}</p>`}
    ${
      links.length > 0 &&
      html`<div class="share-links" tabindex="0" role="region" aria-label="Links"><table class="plain">
        <thead><tr><th>link</th><th>ends</th><th><span class="sr">Revoke</span></th></tr></thead>
        <tbody>${links.map(
          (
            each,
          ) => html`<tr key=${each.id}><td title=${each.id}>${each.name}</td><td class="nowrap">${clock(each.expires)}</td>
            <td><button type="button" class="button" onClick=${() => revoke(each.id)}
                aria-label=${`Revoke the link that ends ${clock(each.expires)}`}>Revoke</button></td></tr>`,
        )}</tbody></table></div>`
    }`;
}

// A link with what the view in front of the reader has in its address: tab, zoom, filter.
function withView(path) {
  const { name, query } = route();
  const now = ["run", "project"].includes(name) ? query.toString() : "";
  return now ? path + (path.includes("?") ? "&" : "?") + now : path;
}
