// The names of runs by their ids: fetched together, once, and shown wherever only an id is known.
import { html, useEffect, useState } from "../h.js";
import { get, quoted } from "../api.js";
import { href } from "../router.js";

const SOON = 30,
  MOST = 100;
const names = new Map(),
  wanted = new Set(),
  watchers = new Set();
let timer = 0;

// The name of a run as far as it is known, else its id.
export function nameOf(id) {
  if (id && !names.has(id)) want(id);
  return names.get(id) || id;
}

function want(id) {
  wanted.add(id);
  timer ||= setTimeout(load, SOON);
}

async function load() {
  const ids = [...wanted].slice(0, MOST);
  timer = 0;
  for (const id of ids) {
    wanted.delete(id);
    names.set(id, "");
  }
  if (wanted.size) timer = setTimeout(load, SOON);
  const answer = await get("runs", { filter: `id in (${ids.map(quoted).join(", ")})`, limit: ids.length }).catch(
    () => null,
  );
  if (!answer) {
    for (const id of ids) names.delete(id);
    return;
  }
  for (const run of answer.runs) names.set(run.id, run.name || "");
  for (const notify of [...watchers]) notify();
}

export function useRunName(id) {
  const [name, setName] = useState(() => (id ? nameOf(id) : ""));
  useEffect(() => {
    const look = () => setName(id ? nameOf(id) : "");
    look();
    watchers.add(look);
    return () => watchers.delete(look);
  }, [id]);
  return name;
}

// A run by its name; the id is its title.
export function RunName({ id }) {
  return html`<span title=${id}>${useRunName(id)}</span>`;
}

export function RunLink({ id }) {
  return html`<a href=${href("run", id)} title=${id}>${useRunName(id)}</a>`;
}
