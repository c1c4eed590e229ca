// The diagnosis of a run: the verdict in one sentence, findings along its steps, and each with its evidence drawn.
import { html, useEffect, useMemo, useRef } from "../h.js";
import { change, useParam } from "../router.js";
import { useLive } from "../use.js";
import { useShownTheme } from "../theme.js";
import { Code, Icon, Severity } from "../parts/controls.js";
import { count, ordinal } from "../parts/format.js";
import { ChartCard } from "../charts/card.js";
import { findingsOf } from "../charts/draw.js";
import { Feed } from "../charts/feed.js";
import { pick } from "../charts/pick.js";
import { Expect, tone } from "./head.js";
import { isOfSpan, isStanding, RankBars, Stacks } from "./rank_evidence.js";

const POINTS = 400;
const MIN_AROUND = 50; // steps before and behind a finding that its evidence shows at least
const NONE = [];

export function Diagnosis({ run, keys, answer, reload, onStep }) {
  const { findings = NONE, complete = true, progress = 1 } = answer || {};
  const [chosen] = useParam("finding");
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (chosen) list.current?.querySelector(`[data-finding="${Number(chosen)}"]`)?.scrollIntoView({ block: "nearest" });
  }, [chosen, findings.length]);
  return html`<div class="diagnosis">
    <p class=${"verdict " + verdictTone(answer, findings)} role="status">${verdict(run, answer, findings, complete, progress)}</p>
    ${findings.some(({ step }) => step !== null) && html`<${TimeLine} run=${run} findings=${findings} />`}
    <ol ref=${list} class="diagnosis-list" aria-label="Findings with their evidence">
      ${findings.map(
        (
          finding,
          at,
        ) => html`<li key=${`${finding.kind} ${finding.key} ${finding.span} ${finding.step}`} data-finding=${at}
            class=${"panel diagnosed " + tone(finding) + (String(at) === chosen ? " on" : "")}>
          <${OneFinding} finding=${finding} run=${run} keys=${keys} reload=${reload} onStep=${onStep} />
        </li>`,
      )}
    </ol>
  </div>`;
}

const verdictTone = (answer, findings) => {
  const open = findings.filter(({ muted }) => !muted);
  if (!answer) return "quiet";
  return open.length ? tone(open[0]) : "good";
};

// What the hub found, in one sentence: the worst first, its cause, and how many there are besides.
function verdict(run, answer, findings, complete, progress) {
  if (!answer) return "Looking for problems…";
  const open = findings.filter(({ muted, severity }) => !muted && severity !== "INFO"),
    rest = open.length - 1;
  const soFar = complete ? "" : ` So far: ${Math.floor(100 * progress)} % is diagnosed.`;
  if (!open.length) {
    const expected = findings.length ? ` ${count(findings.length)} were expected or only explain what is seen.` : "";
    return `No problems found${run.step === null ? "" : ` up to step ${ordinal(run.step)}`}.${expected}${soFar}`;
  }
  const [{ text, cause }] = open,
    why = cause ? `; likely cause: ${cause.replace(/\.$/, "")}` : "",
    others = rest ? ` And ${count(rest)} more ${rest === 1 ? "finding" : "findings"}.` : "";
  return `${text.replace(/\.$/, "")}${why}.${others}${soFar}`;
}

const LANE = 24, // pixels that a flag takes
  LANES = 5, // of flags above each other; the list below has what has no room
  CLOSE = 0.08; // share of the line within which flags stand above each other, as a phone has little room

// The lane of each flag: the lowest in which none stands close to it. The worst findings come first, and get room first.
function lanesOf(steps, last) {
  const taken = /** @type {number[][]} */ ([]);
  return steps.map((step) => {
    let lane = 0;
    while (taken[lane]?.some((other) => Math.abs(other - step) < CLOSE * last)) lane++;
    (taken[lane] ??= []).push(step);
    return lane;
  });
}

// Where along the run's steps its findings are; each leads to its evidence below.
function TimeLine({ run, findings }) {
  const placed = findings.map((finding, at) => ({ finding, at })).filter(({ finding }) => finding.step !== null);
  const steps = placed.map(({ finding }) => finding.step),
    last = Math.max(run.step ?? 0, ...placed.map(({ finding }) => finding.last_step ?? finding.step), 1),
    lanes = lanesOf(steps, last),
    drawn = placed.map((each, n) => ({ ...each, lane: lanes[n] })).filter(({ lane }) => lane < LANES),
    rest = placed.length - drawn.length;
  const place = (step) => `${(100 * Math.max(0, step)) / last}%`;
  const part = ({ finding, at }) => {
    const first = finding.first_step ?? finding.step,
      until = finding.last_step ?? finding.step;
    return html`<span key=${at} aria-hidden="true" class=${"time-line-part " + tone(finding)}
      style=${{ left: place(first), width: `${(100 * Math.max(0, until - first)) / last}%` }}></span>`;
  };
  const flag = ({
    finding,
    at,
    lane,
  }) => html`<button key=${at} type="button" class=${"time-line-mark " + tone(finding)}
      title=${finding.text} aria-label=${`Step ${finding.step}: ${finding.text}`}
      style=${{ left: place(finding.step), bottom: `${2 + LANE * lane}px` }}
      onClick=${() => change({ finding: String(at) })}><${Icon} name="flag" size=${11} /></button>`;
  return html`<div class="time-line" role="group" aria-label="Findings along the steps of the run">
    <div class="time-line-band" style=${{ height: `${8 + LANE * (Math.max(...drawn.map(({ lane }) => lane)) + 1)}px` }}>
      ${placed.map(part)}${drawn.map(flag)}</div>
    <div class="time-line-ends muted"><span>step 0</span>
      ${rest > 0 && html`<span>${count(rest)} more at the same steps are in the list</span>`}
      <span>step ${ordinal(last)}</span></div>
  </div>`;
}

function OneFinding({ finding, run, keys, reload, onStep }) {
  const { severity, text, step, rank, attempt, band, cause, advice, symptoms = NONE, muted, key } = finding;
  const metric = keys.find((each) => each.key === key && each.first_step !== null);
  return html`<header class="diagnosed-head"><${Severity} severity=${severity} /><h2>${text}</h2>
      <span class="grow"></span>
      ${
        step !== null &&
        html`<button type="button" class="button"
          onClick=${() => onStep(step, rank, run.attempts > 1 ? attempt : null)}>Open step ${ordinal(step)}</button>`
      }
      ${!muted && html`<${Expect} finding=${finding} run=${run} reload=${reload} />`}
    </header>
    <div class="diagnosed-parts">
      ${metric && step !== null && html`<${Evidence} finding=${finding} run=${run} metric=${metric} onStep=${onStep} />`}
      ${isStanding(finding) && html`<${Stacks} finding=${finding} run=${run} />`}
      ${isOfSpan(finding) && html`<${RankBars} finding=${finding} run=${run} />`}
      <dl class="diagnosed-words">
        ${[
          ["Expected", band?.replace(/^expected /i, "")],
          ["Likely cause", cause],
          ["What to do", advice],
          ["Also seen", symptoms.join("; ")],
          ["Marked", muted],
        ]
          .filter(([, words]) => words)
          .map(([name, words]) => html`<div key=${name}><dt>${name}</dt><dd>${words}</dd></div>`)}
        ${step !== null && html`<div><dt>In the terminal</dt><dd><${Code} text=${`stepscope step ${run.id} ${step}`} /></dd></div>`}
      </dl>
    </div>`;
}

// The metric around the finding, with its steps tinted and the range that was expected there.
function Evidence({ finding, run, metric, onStep }) {
  const first = finding.first_step ?? finding.step,
    last = finding.last_step ?? finding.step,
    around = Math.max(MIN_AROUND, 2 * (last - first));
  const window = useMemo(() => [Math.max(0, first - around), last + around], [first, last]);
  const how = { x: "step", xKey: null, ranks: "all", from: window[0], to: window[1], points: POINTS, ghosts: false };
  const feed = useMemo(() => new Feed(run.id, how), [run.id, first, last]);
  const theme = useShownTheme();
  useEffect(() => () => feed.close(), [feed]);
  useEffect(() => feed.recolour(), [theme]);
  const source = useMemo(
    () => ({ watch: (notify) => feed.watch(metric, notify), read: () => feed.entry(metric.key) }),
    [feed, metric.key],
  );
  const look = useMemo(
    () => ({
      ...{ kind: "step", window: null, log: false, weight: 0, flags: [], marker: null },
      findings: findingsOf([{ ...finding, muted: "" }], metric.key),
    }),
    [finding, metric.key],
  );
  useLive(
    run.status === "running" && (run.step ?? 0) <= window[1] ? { run: run.id, kind: ["metric"] } : null,
    { records: (data) => feed.take(data), gap: () => feed.refresh() },
    [run.id],
  );
  return html`<${ChartCard} title=${metric.key} source=${source} look=${look}
    on=${{ pick: (mark, plot) => pick(run.id, metric.key, mark, plot, { x: "step" }, onStep) }} />`;
}
