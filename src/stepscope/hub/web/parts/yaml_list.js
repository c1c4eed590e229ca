// A list in YAML that a person writes: a further item, or another order. The rest of the text stays as it is.
import { moved } from "./reorder.js";

/**
 * The text with an item added to the list of a top-level key, indented as those before it.
 * @param {string} text
 * @param {string} section
 * @param {[string, any][]} fields names and values, in order; undefined ones are left out
 */
export function withItem(text, section, fields) {
  const lines = text.replace(/\n+$/, "").split("\n"),
    head = lines.findIndex((line) => line.startsWith(section + ":"));
  const made = (indent) =>
    fields
      .filter(([, value]) => value !== undefined)
      .map(([name, value], at) => `${indent}${at ? "  " : "- "}${name}: ${JSON.stringify(value)}`);
  if (head < 0) return [...(text.trim() ? lines : []), `${section}:`, ...made("  "), ""].join("\n");
  if (/:\s*\[\s*\]\s*$/.test(lines[head])) lines[head] = `${section}:`;
  let end = endOf(lines, head);
  const indent = indentOf(lines.slice(head + 1, end));
  while (end > head + 1 && (!lines[end - 1].trim() || /^#/.test(lines[end - 1]))) end--;
  return [...lines.slice(0, end), ...made(indent), ...lines.slice(end), ""].join("\n");
}

const endOf = (lines, head) => {
  let end = head + 1;
  while (end < lines.length && (!lines[end].trim() || /^(\s|-|#)/.test(lines[end]))) end++;
  return end;
};

const indentOf = (lines) => {
  const first = lines.find((line) => /^ *- /.test(line));
  return first ? first.slice(0, first.indexOf("-")) : "  ";
};

/**
 * The text with an item of the list of a top-level key at another place, with the comments before it; null where the
 * list is written so that its items are not lines of their own.
 * @param {string} text
 * @param {string} section
 * @param {number} many how many items the list has
 * @param {number} from
 * @param {number} to
 */
export function withMoved(text, section, many, from, to) {
  const lines = text.replace(/\n+$/, "").split("\n"),
    head = lines.findIndex((line) => line.startsWith(section + ":"));
  if (head < 0) return null;
  const end = endOf(lines, head),
    mark = indentOf(lines.slice(head + 1, end)) + "- ";
  const items = /** @type {string[][]} */ ([]);
  let before = /** @type {string[]} */ ([]);
  for (const line of lines.slice(head + 1, end)) {
    if (line.startsWith(mark)) {
      items.push([...before, line]);
      before = [];
    } else if (!line.trim() || /^\s*#/.test(line)) before.push(line);
    else if (items.length) {
      items[items.length - 1].push(...before, line);
      before = [];
    } else return null;
  }
  if (items.length !== many) return null;
  return [...lines.slice(0, head + 1), ...moved(items, from, to).flat(), ...before, ...lines.slice(end), ""].join("\n");
}
