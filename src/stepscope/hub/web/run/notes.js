// The notes of a run: Markdown, in which a block ```chart with the name of a metric is a chart that goes on with its run.
import { html, useEffect, useMemo } from "../h.js";
import { ChartCard } from "../charts/card.js";
import { Markdown } from "../parts/markdown.js";
import { useShownTheme } from "../theme.js";
import { RunLines } from "../workspace/lines.js";

const CHARTS = 20, // in one text
  RUNS = 20; // in one chart

/**
 * What a block asks for: metrics, one a line, and `runs: ID, ID` in place of the run itself.
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

export function Notes({ run }) {
  let drawn = 0;
  const draw = (word, lines) => {
    if (word !== "chart") return undefined;
    const { keys, runs } = chartOf(lines);
    return html`<div class="notes-charts">${keys.map(
      (key) =>
        drawn++ < CHARTS &&
        html`<${NotesChart} key=${key + runs.join()} run=${run} name=${key} runs=${runs.length ? runs : [run.id]} />`,
    )}</div>`;
  };
  return html`<${Markdown} text=${run.notes} draw=${draw} />`;
}

const LOOK = { kind: "step", window: null, log: false, weight: 0, flags: [] };

function NotesChart({ run, name, runs }) {
  const feed = useMemo(() => new RunLines(), []);
  const theme = useShownTheme();
  useEffect(() => () => feed.close(), []);
  useEffect(() => {
    const shown = runs.map((id) => (id === run.id ? run : { id, name: id }));
    feed.show(shown, new Map(runs.map((id, at) => [id, at])));
  }, [runs.join("\n"), theme]);
  useEffect(() => feed.move(runs.includes(run.id) ? [run.id] : []), [run.seen]);
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
