// Notes of a run or a project: Markdown, in which a block ```chart with the name of a metric is a chart that goes on with its runs.
import { html, useEffect, useMemo, useRef } from "../h.js";
import { ChartCard } from "../charts/card.js";
import { Markdown } from "../parts/markdown.js";
import { useShownTheme } from "../theme.js";
import { RunLines } from "../workspace/lines.js";

const CHARTS = 20, // in one text
  RUNS = 20; // in one chart

/**
 * What a block asks for: metrics, one a line, and `runs: ID, ID` in place of the runs that the notes are of.
 * @param {string[]} lines
 */
export function chartOf(lines) {
  const words = lines.map((line) => line.trim()).filter(Boolean);
  const runs = words
    .filter((line) => line.startsWith("runs:"))
    .flatMap((line) => line.slice(5).split(","))
    .map((id) => id.trim())
    .filter(Boolean);
  return { keys: words.filter((line) => !line.startsWith("runs:")), runs: [...new Set(runs)].slice(0, RUNS) };
}

/**
 * Notes as they are read.
 * @param {{ text: string, runs: any[] }} given `runs` are those of charts that name none
 */
export function Notes({ text, runs }) {
  let drawn = 0;
  const some = runs.slice(0, RUNS);
  const draw = (word, lines) => {
    if (word !== "chart") return undefined;
    const { keys, runs: named } = chartOf(lines);
    const shown = named.length ? named.map((id) => runs.find((run) => run.id === id) ?? { id, name: id }) : some;
    return html`<div class="notes-charts">${keys.map(
      (key) => drawn++ < CHARTS && html`<${NotesChart} key=${key + named.join()} name=${key} runs=${shown} />`,
    )}</div>`;
  };
  return html`<${Markdown} text=${text} draw=${draw} />`;
}

// The field in which notes are written; Ctrl+Enter saves, Escape leaves.
export function NotesForm({ text, rows = 3, onSave, onClose }) {
  const field = useRef(/** @type {any} */ (null));
  useEffect(() => field.current?.focus(), []);
  const save = (event) => {
    event.preventDefault();
    onClose();
    const written = String(new FormData(event.target).get("notes")).trim();
    if (written !== text) onSave(written);
  };
  const keys = (event) => {
    if (event.key === "Escape") onClose();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.target.form.requestSubmit();
  };
  return html`<form class="notes-form" onSubmit=${save}>
    <textarea name="notes" aria-label="Notes" rows=${rows} maxlength="65536" ref=${field}
        placeholder=${"Markdown; ```chart and the name of a metric make a chart"}
        onKeyDown=${keys}>${text}</textarea>
    <div><button class="button primary">Save</button>
      <button type="button" class="button" onClick=${onClose}>Cancel</button></div>
  </form>`;
}

const LOOK = { kind: "step", window: null, log: false, weight: 0, flags: [] };

function NotesChart({ name, runs }) {
  const feed = useMemo(() => new RunLines(), []);
  const theme = useShownTheme();
  const ids = runs.map((run) => run.id);
  useEffect(() => () => feed.close(), []);
  useEffect(() => {
    feed.show(runs, new Map(ids.map((id, at) => [id, at])));
  }, [ids.join("\n"), theme]);
  useEffect(() => feed.move(runs.filter((run) => run.seen).map((run) => run.id)), [runs.map((run) => run.seen).join()]);
  const source = useMemo(
    () => ({
      watch: (notify) => feed.watch(name, notify),
      read: () => {
        const lines = feed.lines(name);
        return { ...feed.state(name), unit: lines[0]?.unit || "", lines };
      },
    }),
    [feed, name],
  );
  return html`<${ChartCard} title=${name} source=${source} look=${LOOK} on=${{}} linked />`;
}
