// Lines below each other, the newest at the end; only those in sight are drawn, and nothing moves while one reads.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../h.js";
import { href } from "../router.js";
import { useSize } from "../use.js";
import { Severity } from "../parts/controls.js";
import { Exact } from "../parts/exact.js";
import { AttributeTable, instant } from "../parts/fields.js";
import { count, plain } from "../parts/format.js";
import { RunLink, RunName } from "../parts/run_names.js";
import { text } from "./lines.js";

const ROW = 22,
  SPARE = 12,
  NEAR = 4;

export function LogList({ lines, following, onFollow, chosen, onChoose, onOlder, more, showRun }) {
  const [box, size] = useSize();
  const [top, setTop] = useState(0);
  const [fresh, setFresh] = useState(0);
  const before = useRef({ first: -1, last: -1, length: 0, top: 0 });
  const first = Math.max(0, Math.floor(top / ROW) - SPARE),
    last = Math.min(lines.length, Math.ceil((top + size.height) / ROW) + SPARE);
  const at = chosen ? lines.indexOf(chosen) : -1;

  // Older lines came above, or the oldest went: what is read stays where it is.
  useLayoutEffect(() => {
    const body = box.current,
      old = before.current;
    const place =
      old.length && lines.length && lines[0].n !== old.first ? lines.findIndex((line) => line.n === old.first) : 0;
    if (following) body.scrollTop = body.scrollHeight;
    else if (place > 0) body.scrollTop += place * ROW;
    else if (place < 0) body.scrollTop -= Math.max(0, old.length - lines.length) * ROW;
    const seen = lines.findIndex((line) => line.n === old.last);
    if (following || !old.length) setFresh(0);
    else if (seen >= 0) setFresh((known) => known + lines.length - 1 - seen);
    before.current = { ...before.current, first: lines[0]?.n ?? -1, last: lines.at(-1)?.n ?? -1, length: lines.length };
    setTop(body.scrollTop);
  }, [lines, following, size.height]);

  const scrolled = (event) => {
    const body = event.currentTarget,
      end = body.scrollHeight - body.clientHeight - body.scrollTop;
    setTop(body.scrollTop);
    if (body.scrollTop < ROW * NEAR && more) onOlder();
    if (end < ROW && !following) onFollow(true);
    else if (end > ROW * 2 && following && body.scrollTop < before.current.top) onFollow(false);
    before.current.top = body.scrollTop;
  };
  const keys = (event) => {
    const jump = { ArrowDown: at + 1, ArrowUp: at < 0 ? lines.length - 1 : at - 1, Home: 0, End: lines.length - 1 }[
      event.key
    ];
    if (jump === undefined || !lines.length) return;
    event.preventDefault();
    const to = Math.min(Math.max(jump, 0), lines.length - 1),
      body = box.current;
    if (to < lines.length - 1) onFollow(false);
    onChoose(lines[to]);
    if (to * ROW < body.scrollTop) body.scrollTop = to * ROW;
    else if ((to + 1) * ROW > body.scrollTop + size.height) body.scrollTop = (to + 1) * ROW - size.height;
  };
  useEffect(() => {
    if (following) setFresh(0);
  }, [following]);

  return html`<div class="log-place">
    <div class="log-list panel" ref=${box} role="listbox" aria-label="Lines" tabindex="0" onScroll=${scrolled}
        onKeyDown=${keys}
        aria-activedescendant=${at >= 0 ? `line-${chosen.n}` : undefined}>
      <div class="log-rows" role="presentation" style=${{ height: lines.length * ROW + "px" }}>
        ${lines.slice(first, last).map(
          (line, k) =>
            html`<${Line} key=${line.n} line=${line} y=${(first + k) * ROW} on=${line === chosen}
                  onChoose=${onChoose} showRun=${showRun} />`,
        )}
      </div>
    </div>
    ${
      !following &&
      html`<button type="button" class="button log-follow"
          onClick=${() => onFollow(true)}>${fresh ? `${count(fresh)} new ↓` : "Jump to newest ↓"}</button>`
    }
  </div>`;
}

function Line({ line, y, on, onChoose, showRun }) {
  const kind = line.severity_number >= 17 ? " bad" : line.severity_number >= 13 ? " warn" : "";
  return html`<div class=${"log-line" + kind + (on ? " on" : "")} id=${`line-${line.n}`} role="option"
      aria-selected=${String(on)}
      style=${{ transform: `translateY(${y}px)` }} onClick=${() => onChoose(on ? null : line)}>
    <span class="log-time">${instant(line.time)}</span>
    <${Severity} severity=${line.severity} />
    ${showRun && html`<span class="log-run"><${RunName} id=${line.run} /></span>`}
    <span class="log-where">${line.step === null ? "" : line.step}</span>
    <span class="log-where">r${line.rank}</span>
    <span class="log-text">${line.name && html`<b>${line.name}</b> `}${oneLine(text(line))}
      ${line.kind === "event" && !line.body ? html` <span class="muted">${oneLine(brief(line.attrs))}</span>` : ""}</span>
  </div>`;
}

// What has line breaks is one row all the same; the details have it as it is.
const LONGEST = 2000;
const oneLine = (words) =>
  (words.length > LONGEST ? words.slice(0, LONGEST) + " …" : words).replace(/\s*[\r\n]\s*/g, " ⏎ ");

const brief = (attrs) =>
  Object.entries(attrs)
    .map(
      ([key, value]) =>
        `${key}=${value !== null && typeof value === "object" && !(value instanceof Exact) ? "…" : plain(value)}`,
    )
    .join(" ");

const wholeText = (line) =>
  (line.name ? line.name + "\n" : "") +
  (typeof line.body === "object" && line.body && !(line.body instanceof Exact)
    ? JSON.stringify(line.body, null, 2)
    : text(line));

// All fields of one line, and links from it.
export function LineDetails({ line }) {
  return html`<div class="log-details">
    <p class="log-ways">
      ${
        line.step !== null &&
        html`<a class="button" href=${href("run", line.run, { step: line.step, at: line.rank })}>Step ${line.step}</a>`
      }
      ${
        line.trace_id &&
        html`<a class="button" href=${href("traces", { trace: line.trace_id, span: line.span_id })}>Span</a>`
      }
      <a class="button" href=${href("run", line.run)}>Run</a>
      <a class="button" href=${href("logs", { run: line.run, step: line.step })}>Logs of this step</a>
    </p>
    <pre class="log-body" tabindex="0">${wholeText(line)}</pre>
    <dl class="trace-facts">
      ${[
        ["Severity", line.severity],
        ["Run", html`<${RunLink} id=${line.run} />`],
        ["Rank", line.rank],
        ["Attempt", line.attempt],
        ["Step", line.step === null ? "none" : line.step],
        ["Logger", line.scope || "–"],
      ].map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
    </dl>
    <h3>Attributes</h3>
    <${AttributeTable} attrs=${line.attrs} view="logs" run=${line.run} title="Find lines with this value" />
  </div>`;
}
