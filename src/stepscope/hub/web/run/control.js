// What users ask of a running program: to stop, and to change the settings that it declared as live.
import { html, useEffect, useRef, useState } from "../h.js";
import { useAccess } from "../access.js";
import { get, post, runPath } from "../api.js";
import { useFetch } from "../use.js";
import { clock, ordinal, plain } from "../parts/format.js";
import { act, Confirm, toast } from "../parts/overlays.js";

const UNFINISHED = ["running", "stalled", "importing"];
const SOON = 2000,
  SELDOM = 10000; // milliseconds between questions, while a request is open and while none is

// What was asked of a run, kept up to date while it goes on; `run` may be missing at first.
export function useControl(run) {
  const fetched = useFetch(
    (signal) => (run ? get(runPath(run.id, "control"), {}, signal) : Promise.resolve(undefined)),
    [run?.id, run?.status, run?.attempts],
  );
  const latest = useRef(fetched);
  latest.current = fetched;
  const going = UNFINISHED.includes(run?.status);
  const ms = isOpen(fetched.value) ? SOON : SELDOM;
  useEffect(() => {
    const ask = () => {
      if (!document.hidden && !latest.current.loading) latest.current.reload();
    };
    const timer = going ? setInterval(ask, ms) : 0;
    return () => clearInterval(timer);
  }, [going, ms]);
  return fetched;
}

const isOpen = (found) =>
  Boolean(found && (isStopping(found) || found.changes.some(({ state }) => state === "requested")));
const isStopping = ({ stop }) => Boolean(stop && (stop.state === "requested" || stop.state === "received"));

// The button that asks a run to stop, after a question; nothing where the program cannot be asked.
export function StopButton({ run, control }) {
  const [asking, setAsking] = useState(false),
    { may } = useAccess();
  const found = control.value;
  if (!found?.allowed || isStopping(found) || !may("control")) return null;
  const name = run.name || run.id;
  const stop = async () => {
    control.set(await post(runPath(run.id, "stop"), {}));
    toast(`${name} is asked to stop.`);
  };
  return html`<button type="button" class="button" onClick=${() => setAsking(true)}>Stop…</button>
    ${
      asking &&
      html`<${Confirm} title=${`Ask ${name} to stop?`} action="Stop" onClose=${() => setAsking(false)} act=${stop}>
        <p>Nothing is killed: the program hears the request within seconds and ends when it is ready, usually after a
          checkpoint. This cannot be taken back.</p><//>`
    }`;
}

// The last request to stop and what became of it, in one line.
export function StopState({ control }) {
  const stop = control.value?.stop;
  if (!stop) return null;
  return html`<p class=${"run-asked " + stop.state} role="status">${words(stop)}</p>`;
}

function words({ who, time, state, asks, heard_step: heard, last_step: last }) {
  const asked = `Stop requested by ${who} at ${clock(time)}`;
  const at = heard === null ? "" : ` at step ${ordinal(heard)}`;
  if (state === "requested") return `${asked}: waiting for the program.`;
  if (state === "received")
    return asks
      ? `${asked}: heard${at}, the program ends when it is ready.`
      : `${asked}: heard${at}, but the program has not looked at run.stop_requested yet.`;
  const after = last === null ? "" : ` after step ${ordinal(last)}`;
  return state === "stopped"
    ? `Stopped${after}, as ${who} requested at ${clock(time)}.`
    : `${asked}. It ended${after}.`;
}

// The live settings of a run: their values, a field for each while the program can be asked, and what was changed.
export function LiveSettings({ run, control }) {
  const found = control.value,
    { may } = useAccess();
  if (!found || (!found.settings.length && !found.changes.length)) return null;
  return html`<section class="panel box" aria-label="Live settings">
    <header class="box-head"><h2>Live settings</h2></header>
    <div class="box-body" tabindex="0" role="region" aria-label="Table of live settings">
      <table class="plain live-settings"><tbody>
        ${found.settings.map(
          (each) => html`<tr key=${each.name}><th scope="row">${each.name}</th>
            <td class="mono">${plain(each.value)}${
              each.requested !== null && html`<span class="muted"> → ${plain(each.requested)}</span>`
            }</td>
            <td>${found.allowed && may("control") && html`<${Field} run=${run} setting=${each} control=${control} />`}</td></tr>`,
        )}
      </tbody></table>
      ${found.changes.length > 0 && html`<${Changes} changes=${found.changes} />`}
    </div></section>`;
}

function Field({ run, setting: { name, kind, value }, control }) {
  const label = `New value of ${name}`;
  const save = (event) => {
    event.preventDefault();
    const wanted = read(kind, String(new FormData(event.target).get("value")));
    const send = async () => control.set(await post(runPath(run.id, "live"), { [name]: wanted }));
    act(send, `${name} is to be ${plain(wanted)}.`, () => event.target.reset());
  };
  return html`<form class="live-form" onSubmit=${save}>
    ${
      kind === "boolean"
        ? html`<select name="value" aria-label=${label}><option>${String(!value)}</option><option>${String(value)}</option></select>`
        : html`<input name="value" aria-label=${label} required autocomplete="off" maxlength="1024"
            inputmode=${kind === "text" ? "text" : "decimal"} />`
    }
    <button class="button">Set</button></form>`;
}

// What was typed as a value of its kind; the hub says what is wrong with one that does not fit.
function read(kind, text) {
  if (kind === "boolean") return text === "true";
  const number = text.trim() === "" ? NaN : Number(text);
  return kind === "text" || !Number.isFinite(number) ? text : number;
}

const STATES = { requested: "waiting for the program", applied: "applied", refused: "refused", ended: "never applied" };

function Changes({ changes }) {
  return html`<table class="plain"><thead><tr><th>when</th><th>who</th><th>change</th><th>outcome</th></tr></thead><tbody>
    ${changes.map(
      (each) => html`<tr key=${each.id + each.name}><td class="nowrap">${clock(each.time)}</td><td>${each.who}</td>
        <td class="mono">${each.name} = ${plain(each.value)}</td>
        <td class=${each.state === "refused" ? "bad-text" : ""}>${outcome(each)}</td></tr>`,
    )}
  </tbody></table>`;
}

const outcome = ({ state, step, reason }) =>
  STATES[state] + (step === null ? "" : ` at step ${ordinal(step)}`) + (reason ? `: ${reason}` : "");
