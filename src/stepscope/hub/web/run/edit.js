// What people call a run and say about it: its name, tags, notes, and the menu that archives or deletes it.
import { html, useState } from "../h.js";
import { remove } from "../edits.js";
import { go, href } from "../router.js";
import { quoted } from "../runs/completion.js";
import { Confirm } from "../parts/dialog.js";
import { count } from "../parts/format.js";
import { IconButton, Menu } from "../parts/toolbar.js";
import { Tags } from "./tags.js";

const GOING = ["running", "stalled", "importing"];

// The name, which can be changed where it stands; an empty one restores what was recorded.
export function Name({ run, onEdit }) {
  const [open, setOpen] = useState(false);
  const save = (event) => {
    event.preventDefault();
    const name = new FormData(event.target).get("name").trim();
    setOpen(false);
    if (name !== (run.name || ""))
      onEdit({ name: name || null }, name ? `Renamed to ${name}.` : "The recorded name is back.");
  };
  if (open) {
    return html`<form class="name-form" onSubmit=${save}>
      <input name="name" class="name-field" aria-label="Name of the run" value=${run.name || ""} maxlength="256"
          autocomplete="off"
        ref=${(element) => element?.focus()} onFocus=${(event) => event.target.select()} onKeyDown=${(event) => {
          if (event.key === "Escape") setOpen(false);
        }} />
      <button class="button primary">Save</button>
        <button type="button" class="button" onClick=${() => setOpen(false)}>Cancel</button></form>`;
  }
  return html`<h1>${run.name || run.id}</h1>
    <${IconButton} icon="pencil" label="Rename" class="icon-button small" onClick=${() => setOpen(true)} />`;
}

// Tags, the group, and notes.
export function Described({ run, onEdit }) {
  const [open, setOpen] = useState(false);
  const save = (event) => {
    event.preventDefault();
    const notes = new FormData(event.target).get("notes").trim();
    setOpen(false);
    if (notes !== run.notes) onEdit({ notes }, notes ? "Notes saved." : "Notes removed.");
  };
  const keys = (event) => {
    if (event.key === "Escape") setOpen(false);
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.target.form.requestSubmit();
  };
  return html`<div class="described">
    <div class="described-row">
      ${run.archived && html`<span class="chip warn">archived</span>`}
      ${
        run.group &&
        html`<span class="muted">group <a href=${href("runs", { filter: `group = ${quoted(run.group)}` })}>
          ${run.group}</a>
        </span>`
      }
      ${run.job_type && html`<span class="muted">${run.job_type}</span>`}
      <${Tags} run=${run} onEdit=${onEdit} />
      ${
        !run.notes &&
        !open &&
        html`<button type="button" class="chip add" onClick=${() => setOpen(true)}>Add notes</button>`
      }
    </div>
    ${
      open
        ? html`<form class="notes-form" onSubmit=${save}>
          <textarea name="notes" aria-label="Notes" rows="3" maxlength="65536" ref=${(element) => element?.focus()}
              onKeyDown=${keys}>${run.notes}</textarea>
        <div><button class="button primary">Save</button>
          <button type="button" class="button" onClick=${() => setOpen(false)}>Cancel</button></div>
        </form>`
        : run.notes &&
          html`<p class="notes"><span>${run.notes}</span>
            <${IconButton} icon="pencil" label="Edit notes" class="icon-button small" onClick=${() => setOpen(true)} />
          </p>`
    }
  </div>`;
}

// Archive, or delete after a question.
export function Manage({ run, onEdit }) {
  const [asking, setAsking] = useState(false);
  const going = GOING.includes(run.status),
    name = run.name || run.id;
  const archive = (close) => {
    close();
    onEdit({ archived: !run.archived }, run.archived ? `${name} is not archived any more.` : `Archived ${name}.`);
  };
  return html`<${Menu} label="Manage" align="right">${(close) => html`
      <button type="button" class="item" onClick=${() => archive(close)}>${run.archived ? "Unarchive" : "Archive"}
      </button>
      <button type="button" class="item bad-text" disabled=${going}
          title=${going ? `It is ${run.status}: end it first` : undefined} onClick=${() => {
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
