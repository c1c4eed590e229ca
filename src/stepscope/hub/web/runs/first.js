// What a new user sees: the lines to paste, and that the page is waiting for them.
import { html } from "../h.js";
import { Code } from "../parts/code.js";

const LINES = `import stepscope

run = stepscope.init(project="gpt", config={"lr": 3e-4})
run.log({"loss": loss}, step=i, category="trainer")   # in your loop
run.finish()`;

export function FirstRun({ home }) {
  return html`<div class="first">
    <h1>No runs yet</h1>
    <p>Put three lines into your training code. They need no account and no server, and they cannot slow your loop:</p>
    <${Code} text=${LINES} />
    <p>Start it, and the run appears here by itself. ${
      home
        ? html`The hub reads <code>${home}
        </code>; a program that writes elsewhere needs <code>STEPSCOPE_HOME=${home}</code>.`
        : "The hub reads the folder in which your program writes."
    }</p>
    <h2>Or look around first</h2>
    <p>The demo trains a small model in which things go wrong on purpose.</p>
    <${Code} text="stepscope demo" />
    <h2>Already sending OpenTelemetry?</h2>
    <p>Point it here; metrics, spans and logs are understood as they are.</p>
    <${Code} text=${`export OTEL_EXPORTER_OTLP_ENDPOINT=${location.origin}`} />
    <p class="muted" role="status"><span class="pulse" aria-hidden="true"></span> Waiting for a first record…</p>
  </div>`;
}
