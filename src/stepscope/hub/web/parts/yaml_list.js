// A further item of a list in YAML that a person writes: the rest of the text stays as it is.

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
  let end = head + 1;
  while (end < lines.length && (!lines[end].trim() || /^(\s|-|#)/.test(lines[end]))) end++;
  const first = lines.slice(head + 1, end).find((line) => /^ *- /.test(line)),
    indent = first ? first.slice(0, first.indexOf("-")) : "  ";
  while (end > head + 1 && (!lines[end - 1].trim() || /^#/.test(lines[end - 1]))) end--;
  return [...lines.slice(0, end), ...made(indent), ...lines.slice(end), ""].join("\n");
}
