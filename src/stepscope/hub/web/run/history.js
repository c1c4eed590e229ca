// What was changed about a run since it started: who, when, what.
import { html } from "../h.js";
import { get, runPath } from "../api.js";
import { clock, plain } from "../parts/format.js";
import { useAsk } from "../use.js";
import { tagText } from "./tags.js";

export function Edits({ run }) {
  const asked = useAsk(
    (signal) => get(runPath(run.id, "edits"), {}, signal),
    [run.id, run.name, run.notes, run.archived, JSON.stringify(run.tags)],
  );
  const edits = asked.value?.edits || [];
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
  const said = [];
  if (name !== undefined) said.push(name === null ? "restored the recorded name" : `renamed to “${name}”`);
  for (const [tag, value] of Object.entries(tags || {}))
    said.push(
      value === null ? `removed the tag ${tag}` : `tagged ${tagText(tag, plain(value) === "true" ? true : value)}`,
    );
  if (notes !== undefined)
    said.push(notes === null ? "restored the recorded notes" : notes ? `noted “${notes}”` : "removed the notes");
  if (archived !== undefined) said.push(archived ? "archived it" : "unarchived it");
  return said.join("; ");
}
