// The API to read: every endpoint of the hub with its parameters, the shape of its answer and a command line, searchable.
import { html, useEffect, useMemo, useRef } from "../h.js";
import { get } from "../api.js";
import { change, useParam } from "../router.js";
import { useDebounced, useFetch } from "../use.js";
import { Code, Search, Switch } from "../parts/controls.js";
import { count } from "../parts/format.js";
import { Empty, Fetched } from "../parts/states.js";
import { curlOf, inlined, kindOf, shapeOf } from "./examples.js";

export default function Reference() {
  const [q] = useParam("q"),
    [open] = useParam("open"),
    [token, setToken] = useParam("token");
  const search = useDebounced(q, 150);
  const fetched = useFetch((signal) => get("openapi.json", {}, signal), []);
  const newest = useFetch((signal) => get("runs", { limit: 1 }, signal).then(({ runs }) => runs[0]?.id ?? "RUN"), []);
  const all = useMemo(() => (fetched.value ? endpointsOf(fetched.value) : []), [fetched.value]);
  const shown = useMemo(() => matching(all, search), [all, search]);
  const origin = location.origin + location.pathname.replace(/\/$/, "");
  const given = { origin, run: newest.value ?? "RUN", token: token === "1" };
  return html`<div class="page reference">
    <div class="page-head"><h1>API</h1>
      <span class="muted">${fetched.value && `version ${fetched.value.info.version}`}</span>
      <span class="grow"></span><a href="api/openapi.json">openapi.json</a></div>
    <${Fetched} fetched=${fetched} what="Loading the description of the API">${(document) => html`
      <p class="muted">${document.info.description} The page itself uses nothing else. Examples are about your newest run.</p>
      <div class="toolbar" role="group" aria-label="Endpoints">
        <${Search} label="Find an endpoint" placeholder="Find an endpoint  /" value=${q} onChange=${(text) => change({ q: text })} />
        <${Switch} label="with a token" title="Examples with a token, for a hub that requires one" on=${token === "1"}
            onChange=${(on) => setToken(on ? "1" : "")} />
        <span class="muted" role="status">${count(shown.length)} of ${count(all.length)}</span>
      </div>
      ${!shown.length && html`<${Empty} title="No endpoint matches">No path, text or parameter contains “${search}”.<//>`}
      ${sections(shown).map(
        ([name, list]) => html`<section key=${name} aria-label=${name}><h2>${name}</h2>
          ${list.map((each) => html`<${Endpoint} key=${each.id} endpoint=${each} given=${given} open=${open === each.id} />`)}</section>`,
      )}`}<//>
  </div>`;
}

/** The endpoints of a document, in its order. */
export function endpointsOf({ paths, components }) {
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      id: operation.operationId,
      path,
      method: method.toUpperCase(),
      operation: inlined(operation, components.schemas),
      words: [path, method, operation.operationId, operation.summary]
        .concat((operation.parameters ?? []).flatMap(({ name, description }) => [name, description]))
        .join(" ")
        .toLowerCase(),
    })),
  );
}

const matching = (all, text) => {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return all.filter((each) => words.every((word) => each.words.includes(word)));
};

// By the first part of the path; what is about one run stands together.
function sections(list) {
  const made = new Map();
  for (const each of list) {
    const [, , first, second] = each.path.split("/"),
      name = second === "{run}" ? "one run" : first;
    if (!made.has(name)) made.set(name, []);
    made.get(name).push(each);
  }
  return [...made];
}

function Endpoint({ endpoint, given, open }) {
  const { id, path, method, operation } = endpoint;
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (open) place.current?.scrollIntoView({ block: "nearest" });
  }, [open]);
  // One is open at a time, and is in the address; another that opens closes it.
  const toggle = (event) => {
    const isOpen = event.currentTarget.open;
    if (isOpen !== open) change({ open: isOpen ? id : null });
  };
  return html`<details class="panel endpoint" ref=${place} open=${open} onToggle=${toggle}>
    <summary><span class=${"method " + method.toLowerCase()}>${method}</span><code>${path}</code>
      <span class="muted">${operation.summary}</span></summary>
    ${open && html`<${Details} endpoint=${endpoint} given=${given} operation=${operation} />`}
  </details>`;
}

function Details({ endpoint, given, operation }) {
  const params = operation.parameters ?? [],
    body = operation.requestBody?.content?.["application/json"]?.schema,
    answers = Object.entries(operation.responses["200"]?.content ?? {});
  return html`<div class="endpoint-parts">
    <${Code} text=${curlOf(endpoint, given)} />
    ${
      params.length > 0 &&
      html`<div class="scroll-x" tabindex="0" role="region" aria-label="Parameters"><table>
        <thead><tr><th scope="col">parameter</th><th scope="col">is</th><th scope="col">means</th></tr></thead>
        <tbody>${params.map(
          ({ name, required, schema, description, in: place }) => html`<tr key=${name}>
            <th scope="row"><code>${name}</code>
              ${required && html` <span class="chip">${place === "path" ? "in the path" : "required"}</span>`}</th>
            <td>${kindOf(schema)}
              ${schema.default !== undefined && html`<br /><span class="muted">default ${String(schema.default)}</span>`}</td>
            <td>${description}</td></tr>`,
        )}</tbody></table></div>`
    }
    ${body && html`<h3>Body</h3><pre tabindex="0">${shapeOf(body)}</pre>`}
    ${answers.map(
      ([type, { schema }]) => html`<h3 key=${type}>Answer <span class="muted">${type}</span></h3>
        ${schema && Object.keys(schema).length > 0 && html`<pre tabindex="0">${shapeOf(schema)}</pre>`}`,
    )}
  </div>`;
}
