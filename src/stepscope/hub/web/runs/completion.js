// Completion for the filter language: what can stand where the caret is.
const OPERATORS = [
  ["=", "equals"],
  ["!=", "differs"],
  ["<", "less"],
  ["<=", ""],
  [">", "more"],
  [">=", ""],
  ["~", "contains"],
  ["in (", "one of"],
];
const STATUSES = ["importing", "running", "finished", "failed", "crashed", "stalled", "preempted"];
const TOKEN = /"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|[()]|!=|<=|>=|[=<>~,]|[^\s()=<>~!,"']+/g;

// fields: [{ name, hint }], valuesOf(field): texts. Returns { from, to, options: [{ text, hint }] }.
export function complete(text, caret, fields, valuesOf) {
  const before = text.slice(0, caret);
  const tokens = [...before.matchAll(TOKEN)].map((found) => ({ text: found[0], at: found.index }));
  const last = tokens.at(-1),
    touching = last && last.at + last.text.length === caret && !/^[(),]$/.test(last.text);
  const current = touching && !/^[=<>~!]/.test(last.text) ? last.text : "";
  const done = touching && current ? tokens.slice(0, -1) : tokens;
  const place = expected(done.map((token) => token.text));
  const options = optionsFor(place, done, fields, valuesOf);
  const wanted = current.replace(/^["']/, "").toLowerCase();
  const fits = options.filter((option) => option.text.toLowerCase().includes(wanted) && option.text !== current);
  fits.sort((a, b) => starts(b, wanted) - starts(a, wanted));
  return { from: caret - current.length, to: caret, options: fits.slice(0, 12) };
}

const starts = (option, wanted) =>
  option.text
    .toLowerCase()
    .replace(/^(metrics|config|tag)\./, "")
    .startsWith(wanted)
    ? 1
    : 0;

// What the grammar wants next: "field", "operator", "value" or "joint".
function expected(tokens) {
  let place = "field",
    list = false;
  for (const token of tokens) {
    const word = token.toLowerCase();
    if (place === "field") place = word === "not" || token === "(" ? "field" : "operator";
    else if (place === "operator") {
      if (/^[=<>~!]/.test(token)) place = "value";
      else if (word === "in") {
        place = "value";
        list = true;
      } else if (word !== "not") place = "value";
    } else if (place === "value") {
      if (token === "(") continue;
      place = list ? "listed" : "joint";
    } else if (place === "listed") {
      if (token === ",") place = "value";
      else if (token === ")") {
        place = "joint";
        list = false;
      }
    } else if (word === "and" || word === "or") place = "field";
  }
  return place;
}

function optionsFor(place, tokens, fields, valuesOf) {
  if (place === "field")
    return [
      ...fields.map(({ name, hint }) => ({ text: name, hint })),
      { text: "not", hint: "" },
      { text: "(", hint: "" },
    ];
  if (place === "operator") return OPERATORS.map(([text, hint]) => ({ text, hint }));
  if (place === "joint")
    return [
      { text: "and", hint: "" },
      { text: "or", hint: "" },
    ];
  if (place === "listed") return [{ text: ")", hint: "" }];
  const field = [...tokens].reverse().find((token) => fields.some(({ name }) => name === token.text))?.text;
  const values = field === "status" ? STATUSES : field ? valuesOf(field) : [];
  return values.map((value) => ({ text: quoted(value), hint: "" }));
}

export const quoted = (value) => (/^[\w.+-]+$/.test(String(value)) ? String(value) : JSON.stringify(String(value)));
