// The filter's field, with completion that the keyboard can use.
import { html, useEffect, useMemo, useRef, useState } from "../h.js";
import { quoted } from "../api.js";
import { Icon } from "../parts/controls.js";

export function Filter({ value, onChange, fields, valuesOf, problem }) {
  const [text, setText] = useState(value);
  const [caret, setCaret] = useState(null);
  const [at, setAt] = useState(0);
  const input = useRef(/** @type {HTMLInputElement | null} */ (null)),
    timer = useRef(0);
  // What was passed on comes back as the value, without its outer spaces and perhaps late: it is not what one types by then.
  const sent = useRef(/** @type {string[]} */ ([]));
  useEffect(() => {
    const back = sent.current.indexOf(value);
    sent.current = back < 0 ? [] : sent.current.slice(back + 1);
    if (back < 0) setText(value);
  }, [value]);
  // Values are those of the runs that are shown: what was offered stays on offer while the text so far finds no run.
  const offered = useRef(/** @type {Map<string, Set<string>>} */ (new Map()));
  const known = (field) => {
    const found = new Set([...valuesOf(field), ...(offered.current.get(field) ?? [])].slice(0, 200));
    offered.current.set(field, found);
    return [...found];
  };
  const offer = useMemo(() => (caret === null ? null : complete(text, caret, fields, known)), [text, caret, fields]);
  const open = offer !== null && offer.options.length > 0;

  const settle = (next, ms = 350) => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      if (next.trim() !== value) sent.current.push(next.trim());
      onChange(next.trim());
    }, ms);
  };
  const edit = (next, place) => {
    setText(next);
    setCaret(place);
    setAt(-1);
    settle(next);
  };

  function take(option) {
    if (!offer) return;
    const bare = option.text.endsWith("(") || option.text === ")";
    const next = text.slice(0, offer.from) + option.text + (bare ? "" : " ") + text.slice(offer.to).trimStart();
    const place = offer.from + option.text.length + (bare ? 0 : 1);
    edit(next, place);
    requestAnimationFrame(() => {
      input.current?.focus();
      input.current?.setSelectionRange(place, place);
    });
  }

  function keys(event) {
    if (event.key === "Escape" && open) {
      event.stopPropagation();
      setCaret(null);
    } else if (event.key === "Escape") {
      edit("", null);
      settle("", 0);
    } else if (open && event.key === "ArrowDown") setAt((at + 1) % offer.options.length);
    else if (open && event.key === "ArrowUp") setAt((at + offer.options.length - 1) % offer.options.length);
    else if (open && (event.key === "Tab" || event.key === "Enter") && at >= 0 && offer.options[at])
      take(offer.options[at]);
    else if (event.key === "Enter") {
      setCaret(null);
      settle(text, 0);
    } else if (event.key === " " && event.ctrlKey) setCaret(event.target.selectionStart);
    else return;
    if (event.key !== "Escape") event.preventDefault();
  }

  const moved = (event) => setCaret(event.target.selectionStart);
  return html`<div class=${"filter" + (problem ? " wrong" : "")}>
    <span class="search"><${Icon} name="search" />
      <input ref=${input} type="search" role="combobox" aria-label="Filter runs" aria-expanded=${String(open)}
          aria-controls="filter-options" aria-autocomplete="list"
        aria-activedescendant=${open && at >= 0 ? `filter-option-${at}` : undefined}
            aria-invalid=${problem ? "true" : undefined} aria-describedby=${problem ? "filter-problem" : undefined}
        placeholder="Search, or status = running and metrics.loss < 0.5" value=${text} spellcheck=${false}
            autocomplete="off"
        onInput=${(event) => edit(event.target.value, event.target.selectionStart)} onClick=${moved}
            onKeyDown=${keys} onBlur=${() => setTimeout(() => setCaret(null), 150)} />
    </span>
    <ul class="filter-options" id="filter-options" role="listbox" aria-label="Completions" hidden=${!open}>
      ${
        open &&
        offer.options.map(
          (option, index) => html`<li key=${option.text} id=${`filter-option-${index}`} role="option"
              aria-selected=${String(index === at)}
        onPointerDown=${(event) => {
          event.preventDefault();
          take(option);
        }}><code>${option.text}</code><span class="muted">${option.hint}</span></li>`,
        )
      }
    </ul>
    ${problem && html`<p class="filter-problem bad-text" id="filter-problem" role="alert">${problem}</p>`}
  </div>`;
}

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
