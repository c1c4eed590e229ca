// Edits of a run: its name, tags and notes, and the menu that archives or deletes it.
import { html, useState } from "../h.js";
import { May, useAccess } from "../access.js";
import { address, fetchJson, get, runPath, quoted } from "../api.js";
import { deleting } from "../deleting.js";
import { go, href } from "../router.js";
import { useFetch } from "../use.js";
import { Icon, IconButton, Menu } from "../parts/controls.js";
import { bytes, clock, count, ordinal, plain } from "../parts/format.js";
import { Confirm, toast } from "../parts/overlays.js";
import { Notes, NotesForm } from "./notes.js";

const UNFINISHED = ["running", "stalled", "importing"];
// One function for all renders: Preact would focus a field anew, and select what was typed, at each update of the run.
const focus = (element) => element?.focus();

// The name, which can be changed where it stands; an empty one restores what was recorded.
export function Name({ run, onEdit }) {
  const [open, setOpen] = useState(false);
  const save = async (event) => {
    event.preventDefault();
    const name = String(new FormData(event.target).get("name")).trim();
    const done = name ? `Renamed to ${name}.` : "Recorded name restored.";
    if (name === (run.name || "") || (await onEdit({ name: name || null }, done))) setOpen(false);
  };
  if (open) {
    return html`<form class="name-form" onSubmit=${save}>
      <input name="name" class="name-field" aria-label="Name of the run" defaultValue=${run.name || ""} maxlength="256"
          autocomplete="off"
        ref=${focus} onFocus=${(event) => event.target.select()} onKeyDown=${(event) => {
          if (event.key === "Escape") setOpen(false);
        }} />
      <button class="button primary">Save</button>
        <button type="button" class="button" onClick=${() => setOpen(false)}>Cancel</button></form>`;
  }
  return html`<h1 title=${run.name || run.id}>${run.name || run.id}</h1>
    <${May}><${IconButton} icon="pencil" label="Rename" class="icon-button small" onClick=${() => setOpen(true)} /><//>`;
}

// Tags, the group, and notes.
export function Described({ run, onEdit }) {
  const [open, setOpen] = useState(false);
  const { may, limit } = useAccess();
  return html`<div class="described">
    <div class="described-row">
      ${run.archived && html`<span class="chip warn">archived</span>`}
      ${
        run.group &&
        html`<span class="muted">group ${
          limit === "run"
            ? run.group
            : html`<a href=${href("runs", { filter: `group = ${quoted(run.group)}` })}>${run.group}</a>`
        }</span>`
      }
      ${run.job_type && html`<span class="muted">${run.job_type}</span>`}
      ${
        run.parent &&
        html`<span class="muted">forked from ${
          limit === "run" ? run.parent : html`<a href=${href("run", run.parent)}>${run.parent}</a>`
        }${run.from_step === null ? "" : ` at step ${ordinal(run.from_step)}`}</span>`
      }
      <${Tags} run=${run} onEdit=${onEdit} />
      ${
        !run.notes &&
        !open &&
        may("admin") &&
        html`<button type="button" class="chip add" onClick=${() => setOpen(true)}>Add notes</button>`
      }
    </div>
    ${
      open
        ? html`<${NotesForm} text=${run.notes} onClose=${() => setOpen(false)}
            onSave=${(notes) => onEdit({ notes }, notes ? "Notes saved." : "Notes removed.")} />`
        : run.notes &&
          html`<div class=${"notes" + (run.notes.includes("```chart") ? " with-charts" : "")}><${Notes} text=${run.notes} runs=${[run]} />
            <${May}><${IconButton} icon="pencil" label="Edit notes" class="icon-button small" onClick=${() => setOpen(true)} /><//>
          </div>`
    }
  </div>`;
}

// Archive, or delete after a question.
export function Manage({ run, onEdit }) {
  const [asking, setAsking] = useState(false),
    { may } = useAccess();
  const going = UNFINISHED.includes(run.status),
    name = run.name || run.id;
  const archive = (close) => {
    close();
    onEdit({ archived: !run.archived }, run.archived ? `${name} unarchived.` : `Archived ${name}.`);
  };
  if (!may("admin")) return null;
  return html`<${Menu} label="Manage" align="right">${(close) => html`
      <button type="button" class="item" onClick=${() => archive(close)}>${run.archived ? "Unarchive" : "Archive"}
      </button>
      <button type="button" class="item bad-text" disabled=${going}
          title=${going ? `A ${run.status} run cannot be deleted` : undefined} onClick=${() => {
            close();
            setAsking(true);
          }}>Delete…</button>`}<//>
    ${
      asking &&
      html`<${Confirm} title=${`Delete ${name}?`} action="Delete" onClose=${() => setAsking(false)}
      act=${async () => {
        await remove([run.id]);
        go(href("runs"));
      }}>
      <p>Its journals and stored records are removed from this hub's disk: ${stored(run.counts)}. This cannot be undone.</p>
      <//>`
    }`;
}

const stored = ({ points, spans, logs }) => `${count(points)} points, ${count(spans)} spans, ${count(logs)} logs`;

// The tags of a run: shown as links to the runs that share them, removed by a cross, added in a field.
export const tagText = (name, value) => (value === true ? name : `${name}=${plain(value)}`);
const filterOf = (name, value) =>
  value === true
    ? `tag = ${quoted(name)}`
    : `tag.${/^[\w.-]+$/.test(name) ? name : JSON.stringify(name)} = ${quoted(plain(value))}`;

// The tags that a text names: `a, team=red`.
function readTags(text) {
  const found = {};
  for (const part of text.split(",")) {
    const [name, ...value] = part.split("=");
    if (name.trim()) found[name.trim()] = value.length ? value.join("=").trim() : true;
  }
  return found;
}

export function Tags({ run, onEdit }) {
  const [adding, setAdding] = useState(false);
  const [known, setKnown] = useState([]);
  const { may, limit } = useAccess();
  const begin = () => {
    setAdding(true);
    get("fields").then(
      (fields) => setKnown(fields.tags.map(({ name }) => name)),
      () => {},
    );
  };
  const add = async (event) => {
    event.preventDefault();
    const tags = readTags(new FormData(event.target).get("tag"));
    const words = Object.entries(tags).map(([name, value]) => tagText(name, value));
    if (!words.length || (await onEdit({ tags }, `Tagged ${words.join(", ")}.`))) setAdding(false);
  };
  return html`<ul class="tags" aria-label="Tags">
    ${Object.entries(run.tags).map(
      ([name, value]) => html`<li class="chip tag" key=${name}>
      ${
        limit === "run"
          ? tagText(name, value)
          : html`<a href=${href("runs", { filter: filterOf(name, value) })} title="Runs with this tag">${tagText(name, value)}</a>`
      }
      ${
        may("admin") &&
        html`<button type="button" aria-label=${`Remove the tag ${tagText(name, value)}`} title="Remove"
          onClick=${() => onEdit({ tags: { [name]: null } }, `Removed the tag ${tagText(name, value)}.`)}>
            <${Icon} name="close" size=${9} /></button>`
      }</li>`,
    )}
    <li>${
      adding
        ? html`<form onSubmit=${add}>
          <input name="tag" class="tag-field" aria-label="New tags, NAME or NAME=VALUE"
              placeholder="name or name=value" list="known-tags" autocomplete="off" maxlength="256"
          ref=${focus} onKeyDown=${(event) => {
            if (event.key === "Escape") setAdding(false);
          }} onBlur=${(event) => {
            if (!event.target.value.trim()) setAdding(false);
          }} />
          <datalist id="known-tags">${known.map((name) => html`<option key=${name} value=${name} />`)}</datalist>
          </form>`
        : may("admin") &&
          html`<button type="button" class="chip add" onClick=${begin}><${Icon} name="plus" size=${10} />tag</button>`
    }</li>
  </ul>`;
}

// What was changed about a run since it started: who, when, what.
export function Edits({ run }) {
  const fetched = useFetch(
    (signal) => get(runPath(run.id, "edits"), {}, signal),
    [run.id, run.name, run.notes, run.archived, JSON.stringify(run.tags)],
  );
  const edits = fetched.value?.edits || [];
  if (!edits.length) return null;
  return html`<section class="panel box" aria-label="Edits"><header class="box-head"><h2>Edits</h2></header>
    <div class="box-body" tabindex="0" role="region"
        aria-label="Table of edits">
          <table class="plain"><thead><tr><th>when</th><th>who</th><th>what</th></tr></thead><tbody>
      ${edits.slice(0, 200).map(
        (each) =>
          html`<tr key=${each.id}><td class="nowrap">${clock(each.time)}</td><td>${each.who}</td>
              <td class="anywhere">${words(each.change)}</td></tr>`,
      )}
    </tbody></table></div></section>`;
}

function words({ name, notes, tags, archived }) {
  const parts = [];
  if (name !== undefined) parts.push(name === null ? "restored the recorded name" : `renamed to “${name}”`);
  for (const [tag, value] of Object.entries(tags || {}))
    parts.push(
      value === null ? `removed the tag ${tag}` : `tagged ${tagText(tag, plain(value) === "true" ? true : value)}`,
    );
  if (notes !== undefined)
    parts.push(
      notes === null ? "restored the recorded notes" : notes ? `changed the notes to “${notes}”` : "removed the notes",
    );
  if (archived !== undefined) parts.push(archived ? "archived the run" : "unarchived the run");
  return parts.join("; ");
}

// Changes to runs: their names, notes, tags, whether they are archived, and their deletion; each reported, with its undo.
const send = (method, id, body) =>
  fetchJson(address(runPath(id)), {
    method,
    ...(body ? { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) } : {}),
  });

// Change a run; `onEdited(run)` is called with the changed run, also after an undo. A failure is shown, not thrown, and answered with
// false: what was typed stays where it is.
export async function edit(run, change, words, onEdited, label = "Undo") {
  try {
    const answer = await send("PATCH", run.id, change);
    onEdited(answer.run);
    const undone = label === "Undo";
    toast(words, {
      label,
      undo: () => edit(answer.run, answer.undo, undone ? "Undone." : "Redone.", onEdited, undone ? "Redo" : "Undo"),
    });
    return true;
  } catch (error) {
    toast(`Not changed: ${error.message}`, { bad: true });
    return false;
  }
}

// Change several runs alike; one undo takes back all.
export async function editAll(ids, change, words, onEdited) {
  const made = await Promise.allSettled(ids.map((id) => send("PATCH", id, change)));
  const done = made.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  const failed = made.find((each) => each.status === "rejected");
  onEdited();
  const undo = async () => {
    await Promise.allSettled(done.map((answer) => send("PATCH", answer.run.id, answer.undo)));
    onEdited();
    toast("Undone.");
  };
  if (done.length) toast(words(done.length), { undo });
  else toast(`Not changed: ${failed?.reason.message}`, { bad: true });
}

// Delete runs one after the other; throws the error of the first that could not be deleted.
export async function remove(ids) {
  let freed = 0,
    count = 0;
  for (const id of ids) {
    freed += (await deleting(id, () => send("DELETE", id))).bytes;
    count += 1;
  }
  toast(`Deleted ${count === 1 ? ids[0] : `${count} runs`}. ${bytes(freed)} freed.`);
}
