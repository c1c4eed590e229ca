// The tags of a run: shown as links to the runs that share them, removed by a cross, added in a field.
import { html, useState } from "../h.js";
import { get } from "../api.js";
import { href } from "../router.js";
import { quoted } from "../runs/completion.js";
import { plain } from "../parts/format.js";
import { Icon } from "../parts/icons.js";

export const tagText = (name, value) => (value === true ? name : `${name}=${plain(value)}`);
const filterOf = (name, value) =>
  value === true
    ? `tag = ${quoted(name)}`
    : `tag.${/^[\w.-]+$/.test(name) ? name : JSON.stringify(name)} = ${quoted(plain(value))}`;

// The tags that a text names: `a, team=red`.
export function readTags(text) {
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
  const begin = () => {
    setAdding(true);
    get("fields").then(
      (fields) => setKnown(fields.tags.map(({ name }) => name)),
      () => {},
    );
  };
  const add = (event) => {
    event.preventDefault();
    const tags = readTags(new FormData(event.target).get("tag"));
    setAdding(false);
    if (Object.keys(tags).length)
      onEdit(
        { tags },
        `Tagged ${Object.entries(tags)
          .map(([name, value]) => tagText(name, value))
          .join(", ")}.`,
      );
  };
  return html`<ul class="tags" aria-label="Tags">
    ${Object.entries(run.tags).map(
      ([name, value]) => html`<li class="chip tag" key=${name}>
      <a href=${href("runs", { filter: filterOf(name, value) })} title="Runs with this tag">${tagText(name, value)}</a>
      <button type="button" aria-label=${`Remove the tag ${tagText(name, value)}`} title="Remove"
          onClick=${() => onEdit({ tags: { [name]: null } }, `Removed the tag ${tagText(name, value)}.`)}>
            <${Icon} name="close" size=${9} /></button>
      </li>`,
    )}
    <li>${
      adding
        ? html`<form onSubmit=${add}>
          <input name="tag" class="tag-field" aria-label="New tags, NAME or NAME=VALUE"
              placeholder="name or name=value" list="known-tags" autocomplete="off" maxlength="256"
          ref=${(element) => element?.focus()} onKeyDown=${(event) => {
            if (event.key === "Escape") setAdding(false);
          }} onBlur=${(event) => {
            if (!event.target.value.trim()) setAdding(false);
          }} />
          <datalist id="known-tags">${known.map((name) => html`<option key=${name} value=${name} />`)}</datalist>
          </form>`
        : html`<button type="button" class="chip add" onClick=${begin}><${Icon} name="plus" size=${10} />tag</button>`
    }</li>
  </ul>`;
}
