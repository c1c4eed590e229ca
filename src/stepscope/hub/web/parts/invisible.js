// Characters that cannot be seen or that change the order of others, escaped, as `model/invisible.py` does.
const HIDDEN = /[\p{Cc}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\ufff9-\ufffb]/gu,
  PLAIN = /^[\x20-\x7e]*$/,
  SYMBOL = /[\u00a9\u00ae\u203c-\u3299\udc00-\udfff]/,
  LATER = 0x300; // from here on come scripts in which joiners have a meaning, and emojis

export function escapeInvisible(text) {
  return PLAIN.test(text)
    ? text
    : text.replace(HIDDEN, (found, at) => (isMeant(found, at, text) ? found : escaped(found)));
}

// Line ends, tabs, colours of a terminal, and what is drawn as one with its neighbours.
function isMeant(found, at, text) {
  if ("\t\n\r\x1b".includes(found)) return true;
  if ("\u200c\u200d".includes(found)) return text.charCodeAt(at - 1) >= LATER && text.charCodeAt(at + 1) >= LATER;
  return "\ufe0e\ufe0f".includes(found) && (SYMBOL.test(text[at - 1] ?? "") || text[at + 1] === "\u20e3");
}

function escaped(found) {
  const number = found.codePointAt(0).toString(16);
  return number.length > 4 ? `\\u{${number}}` : `\\u${number.padStart(4, "0")}`;
}
