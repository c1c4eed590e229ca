// Traces: spans found by anything they carry, and one trace, or one step on all ranks, drawn.
import { html } from "../h.js";
import { SpanSearch } from "../trace/search.js";
import { backToSearch, Viewer } from "../trace/viewer.js";

export default function Traces({ query }) {
  const trace = query.get("trace"),
    run = query.get("run"),
    at = query.get("at");
  if (trace) return html`<${Viewer} key=${trace} picked=${{ trace_id: trace }} back=${backToSearch(query)} />`;
  if (run && at) {
    return html`<${Viewer} key=${run + " " + at} picked=${{ run, step: at, last: query.get("last") }}
        title=${`${run}, step ${at}`} back=${backToSearch(query)} />`;
  }
  return html`<${SpanSearch} />`;
}
