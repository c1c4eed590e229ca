// The notes of a project: Markdown with charts of its visible runs, kept on the hub.
import { html, useState } from "../h.js";
import { May } from "../access.js";
import { address, fetchJson, get } from "../api.js";
import { useFetch } from "../use.js";
import { toast } from "../parts/overlays.js";
import { Empty, Fetched } from "../parts/states.js";
import { Notes, NotesForm } from "../run/notes.js";

export function ProjectNotes({ project, runs }) {
  const fetched = useFetch((signal) => get("views", { project }, signal), [project]);
  const [open, setOpen] = useState(false);
  const save = async (notes, version) => {
    try {
      await fetchJson(address("views", { project }), {
        method: "PUT",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ notes, version }),
      });
      toast(notes ? "Notes saved." : "Notes removed.");
      fetched.reload();
      return true;
    } catch (error) {
      toast(error.message, { bad: true });
      return false;
    }
  };
  const edit = html`<${May}><button type="button" class="button" onClick=${() => setOpen(true)}>Edit notes</button><//>`;
  return html`<div class="project-notes">
    <${Fetched} fetched=${fetched} what="Loading notes">${({ notes, version }) => {
      if (open)
        return html`<${NotesForm} text=${notes} rows=${16} onClose=${() => setOpen(false)}
          onSave=${(written) => save(written, version)} />`;
      if (notes) return html`<div class="notes with-charts"><${Notes} text=${notes} runs=${runs} /></div>${edit}`;
      return html`<${Empty} title="No notes yet">Markdown, with charts of the visible runs. <p>${edit}</p><//>`;
    }}<//>
  </div>`;
}
