// The waterfall: a row for each span, parents above children, folded and unfolded; only rows in sight are drawn.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../h.js";
import { useSize } from "../use.js";
import { Icon } from "../parts/controls.js";
import { millis } from "../parts/format.js";
import { spanColour } from "./colours.js";
import { laneTitle, moved, ticks, zoomed } from "./model.js";

const ROW = 24,
  SPARE = 6,
  OPEN_AT_FIRST = 400;

export function Waterfall({ trace, view, onView, selected, onSelect, critical }) {
  const [box, size] = useSize();
  const [top, setTop] = useState(0);
  const [folded, setFolded] = useState(() => foldedAtFirst(trace));
  const wanted = useRef(false);
  const shown = useMemo(() => visible(trace, folded, critical), [trace, folded, critical]);
  const first = Math.max(0, Math.floor(top / ROW) - SPARE);
  const last = Math.min(shown.length, Math.ceil((top + size.height) / ROW) + SPARE);
  const place = selected < 0 ? 0 : Math.max(0, shown.indexOf(selected));

  useEffect(() => setFolded(foldedAtFirst(trace)), [trace]);
  useEffect(() => {
    if (selected >= 0) setFolded((old) => unfoldedTo(trace, old, selected));
  }, [selected]);
  useEffect(() => {
    const at = selected < 0 ? -1 : shown.indexOf(selected);
    const body = box.current;
    if (at < 0 || !size.height) return;
    if (at * ROW < body.scrollTop || (at + 2) * ROW > body.scrollTop + size.height)
      body.scrollTop = Math.max(0, at * ROW - size.height / 2);
  }, [selected, shown, size.height > 0]);
  useLayoutEffect(() => {
    if (!wanted.current) return;
    wanted.current = false;
    box.current.querySelector("[aria-selected=true]")?.focus({ preventScroll: true });
  });
  useWheel(box, trace, onView);

  const fold = (i, on) =>
    setFolded((old) => {
      const next = new Set(old);
      if (on) next.add(i);
      else next.delete(i);
      return next;
    });
  const keys = (event) => {
    const i = shown[place],
      page = Math.max(1, Math.floor(size.height / ROW) - 2);
    const jumps = {
      ArrowDown: place + 1,
      ArrowUp: place - 1,
      PageDown: place + page,
      PageUp: place - page,
      Home: 0,
      End: shown.length - 1,
    };
    if (event.key in jumps) {
      wanted.current = true;
      onSelect(selected < 0 ? shown[0] : shown[Math.min(Math.max(jumps[event.key], 0), shown.length - 1)]);
    } else if (event.key === "ArrowRight" && folded.has(i)) fold(i, false);
    else if (event.key === "ArrowLeft" && trace.size[i] > 1 && !folded.has(i)) fold(i, true);
    else if (event.key === "ArrowLeft" && trace.parent[i] >= 0) {
      wanted.current = true;
      onSelect(trace.parent[i]);
    } else if (event.key === "+" || event.key === "=")
      onView((old) => zoomed(old, 0.6, (old.from + old.to) / 2, trace.total));
    else if (event.key === "-") onView((old) => zoomed(old, 1.7, (old.from + old.to) / 2, trace.total));
    else if (event.key === "0") onView({ from: 0, to: trace.total });
    else return;
    event.preventDefault();
  };

  return html`<div class="trace-fall">
    <div class="trace-fall-head" aria-hidden="true"><span>Span</span><${Ruler} view=${view} width=${size.width} />
      <span class="right">Time</span></div>
    <div class="trace-scroll" ref=${box} role="treegrid" aria-label=${`Waterfall of ${trace.n} spans`}
        aria-rowcount=${shown.length} onKeyDown=${keys}
        onScroll=${(event) => setTop(event.currentTarget.scrollTop)}>
      <div role="rowgroup" style=${{ height: shown.length * ROW + "px" }} class="trace-rows">
        ${shown.slice(first, last).map(
          (i, k) => html`<${Row} key=${i} trace=${trace} i=${i} at=${first + k} view=${view} folded=${folded.has(i)}
              onFold=${fold}
          critical=${critical} chosen=${i === selected} reachable=${first + k === place} onSelect=${onSelect} />`,
        )}
      </div>
    </div>
  </div>`;
}

function Row({ trace, i, at, view, folded, onFold, critical, chosen, reachable, onSelect }) {
  const name = trace.names[trace.name[i]],
    failed = trace.status[i] === 2,
    inside = trace.size[i] > 1;
  const range = view.to - view.from,
    low = (trace.start[i] - view.from) / range,
    high = (trace.end[i] - view.from) / range;
  const left = Math.max(low, -0.01),
    right = Math.min(high, 1.01);
  const away = high < 0 ? "←" : low > 1 ? "→" : "";
  return html`<div role="row" class=${"trace-row" + (chosen ? " on" : "") + (failed ? " failed" : "")}
      aria-selected=${String(chosen)} aria-level=${trace.depth[i] + 1}
      aria-expanded=${inside ? String(!folded) : undefined} aria-rowindex=${at + 1} tabindex=${reachable ? 0 : -1}
      style=${{ transform: `translateY(${at * ROW}px)` }} onClick=${() => onSelect(i)}
          onDblClick=${() => inside && onFold(i, !folded)}>
    <span role="gridcell" class="trace-name" style=${{ paddingLeft: Math.min(trace.depth[i], 24) * 12 + "px" }}>
      <span class=${"trace-twist" + (folded ? "" : " open")} aria-hidden="true" onClick=${(event) => {
        if (inside) {
          event.stopPropagation();
          onFold(i, !folded);
        }
      }}>
        ${inside && html`<${Icon} name="right" size=${10} />`}</span>
      ${failed && html`<span class="bad-text" aria-label="failed">✕</span>`}
      <span class="trace-word" title=${name}>${name}</span>
      ${
        trace.depth[i] === 0 &&
        html`<span class="trace-lane">${laneTitle(trace.lanes[trace.lane[i]], trace.lanes)}</span>`
      }
      ${folded && html`<span class="trace-count">${trace.size[i] - 1}</span>`}
    </span>
    <span role="gridcell" class="trace-track" aria-hidden="true">${
      away
        ? html`<span class="trace-away" style=${{ [away === "←" ? "left" : "right"]: "2px" }}>${away}</span>`
        : html`<span
            class=${
              "trace-bar" + (critical && trace.critical[i] <= 0 ? " faded" : "") + (trace.open[i] ? " still" : "")
            }
          style=${{
            left: left * 100 + "%",
            width: Math.max(right - left, 0) * 100 + "%",
            background: failed ? "var(--bad)" : spanColour(trace.names[trace.name[i]]),
          }}>
          </span>`
    }
    </span>
    <span role="gridcell" class="trace-time">${trace.open[i] ? "open" : millis(trace.end[i] - trace.start[i])}</span>
  </div>`;
}

function Ruler({ view, width }) {
  const range = view.to - view.from;
  return html`<span class="trace-ruler">${ticks(view, width * 0.55).map(
    ({ at, text }) => html`
    <span key=${at} style=${{ left: ((at - view.from) / range) * 100 + "%" }}>${text}</span>`,
  )}</span>`;
}

function useWheel(box, trace, onView) {
  useEffect(() => {
    const body = box.current;
    const wheel = (event) => {
      if (!(event.ctrlKey || event.metaKey || event.shiftKey)) return;
      event.preventDefault();
      const track = body.querySelector(".trace-track")?.getBoundingClientRect();
      if (!track) return;
      const share = Math.min(Math.max((event.clientX - track.left) / track.width, 0), 1);
      onView((old) =>
        event.shiftKey
          ? moved(old, ((event.deltaX || event.deltaY) / track.width) * (old.to - old.from), trace.total)
          : zoomed(old, Math.exp(event.deltaY / 240), old.from + share * (old.to - old.from), trace.total),
      );
    };
    body.addEventListener("wheel", wheel, { passive: false });
    return () => body.removeEventListener("wheel", wheel);
  }, [trace]);
}

// A small trace is all open; of a large one the first levels are.
function foldedAtFirst(trace) {
  const folded = new Set();
  if (trace.n <= OPEN_AT_FIRST) return folded;
  let level = 0,
    rows = 0;
  const counts = [];
  for (let i = 0; i < trace.n; i++) counts[trace.depth[i]] = (counts[trace.depth[i]] || 0) + 1;
  while (level < counts.length && rows + counts[level] <= OPEN_AT_FIRST) rows += counts[level++];
  for (let i = 0; i < trace.n; i++) if (trace.depth[i] >= Math.max(level - 1, 0) && trace.size[i] > 1) folded.add(i);
  return folded;
}

function unfoldedTo(trace, folded, i) {
  const above = [];
  for (let at = trace.parent[i]; at >= 0; at = trace.parent[at]) if (folded.has(at)) above.push(at);
  if (!above.length) return folded;
  const next = new Set(folded);
  for (const each of above) next.delete(each);
  return next;
}

// The rows: what is inside a folded span is left out, and what is not critical when only that is wanted.
function visible(trace, folded, critical) {
  const found = [];
  for (let at = 0; at < trace.n;) {
    const i = trace.order[at];
    if (critical === "only" && trace.critical[i] <= 0) {
      at += 1;
      continue;
    }
    found.push(i);
    at += folded.has(i) ? trace.size[i] : 1;
  }
  return found;
}
