// Tags in the table of runs: the cell, and what the filter completes.
import { html } from "../h.js";
import { count, plain } from "../parts/format.js";
import { tagText } from "../run/tags.js";

const SHOWN = 3;

export function tagCell(run) {
  const tags = Object.entries(run.tags || {}).map(([name, value]) => tagText(name, value));
  return html`${run.archived && html`<span class="chip warn" key="archived">archived</span>`}
    ${tags.slice(0, SHOWN).map((text) => html`<span class="chip" key=${text} title=${text}>${text}</span>`)}
    ${
      tags.length > SHOWN &&
      html`<span class="muted" title=${tags.slice(SHOWN).join(", ")}>+${tags.length - SHOWN}</span>`
    }`;
}

const spelled = (name) => (/^[\w.-]+$/.test(name) ? name : JSON.stringify(name));

export const tagFields = (fields) => [
  { name: "tag", hint: "has the tag" },
  ...(fields.tags || []).map(({ name, runs }) => ({ name: "tag." + spelled(name), hint: `${count(runs)} runs` })),
];

// The values that a field of tags has in some rows; undefined when it is no such field.
export function tagValues(field, rows, fields) {
  if (field === "tag" || field === "tags") return (fields.tags || []).map(({ name }) => name);
  if (!field.startsWith("tag.")) return undefined;
  const name = field[4] === '"' ? JSON.parse(field.slice(4)) : field.slice(4);
  return [
    ...new Set(
      rows
        .slice(0, 2000)
        .map((run) => run.tags?.[name])
        .filter((value) => value !== undefined)
        .map(plain),
    ),
  ].slice(0, 200);
}
