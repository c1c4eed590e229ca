// The runs that are picked: archived, shown again or deleted together; and which archived runs the table shows.
import { html, useState } from "../h.js";
import { editAll, remove } from "../edits.js";
import { change } from "../router.js";
import { Confirm } from "../parts/dialog.js";
import { count } from "../parts/format.js";
import { Menu, Select } from "../parts/toolbar.js";

const many = (n) => `${count(n)} ${n === 1 ? "run" : "runs"}`;

export function Manage({ picked, onDone }) {
  const [asking, setAsking] = useState(false);
  if (!picked.size) return null;
  const ids = [...picked];
  const archive = (close, archived) => {
    close();
    editAll(ids, { archived }, (n) => `${archived ? "Archived" : "Unarchived"} ${many(n)}.`, onDone);
  };
  return html`<${Menu} label="Manage" align="right">${(close) => html`
      <button type="button" class="item" onClick=${() => archive(close, true)}>Archive ${many(ids.length)}</button>
      <button type="button" class="item" onClick=${() => archive(close, false)}>Unarchive ${many(ids.length)}</button>
      <button type="button" class="item bad-text" onClick=${() => {
        close();
        setAsking(true);
      }}>Delete ${many(ids.length)}…</button>`}<//>
    ${
      asking &&
      html`<${Confirm} title=${`Delete ${many(ids.length)}?`} action="Delete" onClose=${() => setAsking(false)}
          act=${() => remove(ids).finally(onDone)}>
      <p>Their journals and stored records are removed from this hub's disk. This cannot be undone. A run that is running is kept.</p>
      <//>`
    }`;
}

export function Archived({ value, count: there }) {
  if (!there && !value) return null;
  return html`<${Select} label="Archived runs" value=${value} onChange=${(next) => change({ archived: next })}
    options=${[
      ["", "without archived"],
      ["show", `with ${count(there)} archived`],
      ["only", "archived only"],
    ]} />`;
}
