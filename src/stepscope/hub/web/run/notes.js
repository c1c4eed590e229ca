// Notes of a run or a project and texts of dashboards: Markdown, in which a block ```chart with the name of a metric is a chart of
// one run or of several that goes on with them.
import { html, useEffect, useMemo, useRef, useState } from "../h.js";
import { get, quoted } from "../api.js";
import { useFetch } from "../use.js";
import { ChartCard } from "../charts/card.js";
import { Markdown } from "../parts/markdown.js";
import { ConfirmDiscard } from "../parts/overlays.js";
import { useShownTheme } from "../theme.js";
import { RunLines } from "../workspace/lines.js";

const CHARTS = 20, // in one text
  RUNS = 20, // in one chart
  RELOAD_MS = 10000; // while one of them goes on

/**
 * What a block asks for: metrics, one a line, and in place of the runs that the text is of `runs: ID, ID` or `where: FILTER`.
 * @param {string[]} lines
 */
export function chartOf(lines) {
  const words = lines.map((line) => line.trim()).filter(Boolean);
  const after = (name) => words.filter((line) => line.startsWith(name)).map((line) => line.slice(name.length).trim());
  const runs = after("runs:")
    .flatMap((line) => line.split(","))
    .map((id) => id.trim())
    .filter(Boolean);
  const keys = words.filter((line) => !line.startsWith("runs:") && !line.startsWith("where:"));
  return { keys, runs: [...new Set(runs)].slice(0, RUNS), where: after("where:").join(" and ") };
}

/**
 * Notes as they are read.
 * @param {{ text: string, runs?: any[] }} given `runs` are those of charts that name none
 */
export function Notes({ text, runs = NONE }) {
  let drawn = 0;
  const some = runs.slice(0, RUNS);
  const draw = (word, lines) => {
    if (word !== "chart") return undefined;
    const { keys, runs: ids, where } = chartOf(lines);
    return html`<div class="notes-charts">${keys.map(
      (key) =>
        drawn++ < CHARTS &&
        html`<${NotesChart} key=${key + ids.join() + where} own=${some} name=${key} ids=${ids} where=${where} />`,
    )}</div>`;
  };
  return html`<${Markdown} text=${text} draw=${draw} />`;
}

// The field in which notes are written; Ctrl+Enter saves, Escape leaves. It stays open, with what was written, until `onSave` says
// that it is saved.
export function NotesForm({ text, rows = 3, onSave, onClose }) {
  const field = useRef(/** @type {any} */ (null));
  useEffect(() => field.current?.focus(), []);
  const [busy, setBusy] = useState(false),
    [leaving, setLeaving] = useState(false);
  const save = async (event) => {
    event.preventDefault();
    const written = String(new FormData(event.target).get("notes")).trim();
    setBusy(true);
    if (written === text || (await onSave(written))) return onClose();
    setBusy(false);
  };
  const leave = () => (field.current.value.trim() === text ? onClose() : setLeaving(true));
  const keys = (event) => {
    if (event.key === "Escape") leave();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.target.form.requestSubmit();
  };
  return html`<form class="notes-form" onSubmit=${save}>
    <textarea name="notes" aria-label="Notes" rows=${rows} maxlength="65536" ref=${field}
        placeholder=${"Markdown; ```chart and the name of a metric make a chart"}
        onKeyDown=${keys}>${text}</textarea>
    <div><button class="button primary" disabled=${busy}>Save</button>
      <button type="button" class="button" onClick=${leave}>Cancel</button></div>
  </form>${leaving && html`<${ConfirmDiscard} onDiscard=${onClose} onClose=${() => setLeaving(false)} />`}`;
}

const LOOK = { kind: "step", window: null, log: false, weight: 0, flags: [] };
const NONE = /** @type {any[]} */ ([]);

// The runs of a chart: those that are named or that a filter picks, the newest first, else those of the text.
function useChartRuns(own, ids, where) {
  const filter = where || (ids.length ? `id in (${ids.map(quoted).join(", ")})` : "");
  const fetched = useFetch(
    (signal) =>
      filter ? get("runs", { filter, limit: RUNS }, signal).then(({ runs }) => runs) : Promise.resolve(NONE),
    [filter],
  );
  const going = (fetched.value ?? NONE).some(({ status }) => status === "running");
  useEffect(() => {
    const timer = going ? setInterval(fetched.reload, RELOAD_MS) : 0;
    return () => clearInterval(timer);
  }, [going]);
  const found = fetched.value ?? NONE;
  const named = ids.flatMap((id) => found.find((each) => each.id === id) ?? NONE);
  return {
    runs: where ? found : filter ? named : own,
    error: fetched.error,
    loading: filter && !fetched.value,
  };
}

function NotesChart({ own, name, ids, where }) {
  const feed = useMemo(() => new RunLines(), []);
  const theme = useShownTheme();
  const { runs, error, loading } = useChartRuns(own, ids, where);
  useEffect(() => () => feed.close(), []);
  useEffect(() => {
    feed.show(runs, new Map(runs.map(({ id }, at) => [id, at])));
  }, [runs.map(({ id }) => id).join("\n"), theme]);
  useEffect(() => feed.move(runs.map(({ id }) => id)), [runs.map(({ seen }) => seen).join()]);
  const source = useMemo(
    () => ({
      watch: (notify) => feed.watch(name, notify),
      read: () => {
        const lines = feed.lines(name),
          state = feed.state(name);
        return { loading: state.loading || loading, error: error ?? state.error, unit: lines[0]?.unit || "", lines };
      },
    }),
    [feed, name, error, loading],
  );
  const empty = runs.length
    ? `No metric is called ${name}: the whole name is needed, such as trainer/loss`
    : "No run matches";
  return html`<${ChartCard} title=${name} source=${source} look=${LOOK} on=${{}} empty=${empty} linked />`;
}
