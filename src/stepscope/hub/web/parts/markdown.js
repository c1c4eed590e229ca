// Markdown as elements: headings, lists, quotes, code, emphasis and links. Nothing in a text becomes HTML of its own.
import { html } from "../h.js";

/** @typedef {{ kind: string, lines: string[], level?: number, word?: string }} Block */

const FENCE = /^ {0,3}```\s{0,9}([\w-]{0,40})\s*$/,
  HEADING = /^(#{1,6}) +(.*)$/,
  ITEM = /^ {0,6}(?:[-*+]|(\d{1,9})[.)]) +(.*)$/,
  QUOTE = /^> ?(.*)$/,
  INLINE =
    /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*]+)\*|\[([^\]]{1,300})\]\(([^()\s]{1,2000})\)|(https?:\/\/[^\s<>()]{1,2000})/g;

/**
 * The blocks of a text, in order; each line is looked at once.
 * @param {string} text
 * @returns {Block[]}
 */
export function blocksOf(text) {
  /** @type {Block[]} */
  const blocks = [];
  /** @type {Block | null} */
  let open = null;
  const into = (kind, line) => {
    if (open && open.kind === kind) open.lines.push(line);
    else blocks.push((open = { kind, lines: [line] }));
  };
  for (const line of text.split(/\r?\n/)) {
    const fence = FENCE.exec(line);
    if (open?.kind === "code") {
      if (fence && !fence[1]) open = null;
      else open.lines.push(line);
      continue;
    }
    const heading = HEADING.exec(line),
      item = ITEM.exec(line),
      quote = QUOTE.exec(line);
    if (fence) blocks.push((open = { kind: "code", lines: [], word: fence[1] }));
    else if (!line.trim()) open = null;
    else if (heading) {
      blocks.push({ kind: "heading", lines: [heading[2]], level: heading[1].length });
      open = null;
    } else if (item) into(item[1] ? "numbers" : "items", item[2]);
    else if (quote) into("quote", quote[1]);
    else into("text", line);
  }
  return blocks;
}

const isSafe = (address) => /^(https?:\/\/|#\/|mailto:)/i.test(address);

// A line with its emphasis, code and links; a link leads to the web, or to a place on this page.
function inline(text) {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(INLINE)) {
    parts.push(text.slice(end, found.index));
    end = found.index + found[0].length;
    const [whole, code, strong, soft, name, address, plain] = found;
    if (code) parts.push(html`<code>${code}</code>`);
    else if (strong) parts.push(html`<strong>${strong}</strong>`);
    else if (soft) parts.push(html`<em>${soft}</em>`);
    else if (plain || isSafe(address)) {
      const to = plain || address;
      const away = to.startsWith("#") ? {} : { target: "_blank", rel: "noopener noreferrer" };
      parts.push(html`<a href=${to} ...${away}>${name || plain}</a>`);
    } else parts.push(whole);
  }
  return [...parts, text.slice(end)];
}

const lines = (block) => block.lines.flatMap((line, at) => [at ? "\n" : "", ...inline(line)]);

/**
 * A text in Markdown. `draw` makes the elements of a fenced block by its first word; undefined leaves it as code.
 * @param {{ text: string, draw?: (word: string, lines: string[]) => any }} given
 */
export function Markdown({ text, draw = () => undefined }) {
  return html`<div class="markdown">${blocksOf(text).map((block, at) => {
    const inside = () => block.lines.map((line, n) => html`<li key=${n}>${inline(line)}</li>`);
    switch (block.kind) {
      case "code":
        return draw(block.word ?? "", block.lines) ?? html`<pre key=${at}><code>${block.lines.join("\n")}</code></pre>`;
      case "heading": // those of the page itself are above
        return html`<p key=${at} role="heading" aria-level=${Math.min(6, (block.level ?? 1) + 1)} class="markdown-heading">
          ${inline(block.lines[0])}</p>`;
      case "items":
        return html`<ul key=${at}>${inside()}</ul>`;
      case "numbers":
        return html`<ol key=${at}>${inside()}</ol>`;
      case "quote":
        return html`<blockquote key=${at}>${lines(block)}</blockquote>`;
      default:
        return html`<p key=${at}>${lines(block)}</p>`;
    }
  })}</div>`;
}
