// The head of a run over the views that are its tabs, Traces and Logs; without a run, or one nobody knows, their own title.
import { html } from "../h.js";
import { get, runPath } from "../api.js";
import { edit } from "../edits.js";
import { go, href } from "../router.js";
import { useAsk } from "../use.js";
import { RunHead } from "./head.js";

// `children` are the actions of the view.
export function RunBanner({ id, tab, title, children }) {
  const plain = html`<h1>${title}</h1>`;
  return html`${id ? html`<${Banner} key=${id} id=${id} tab=${tab} title=${title} />` : null}
    <div class="page-head">${id ? null : plain}<span class="grow"></span>${children}</div>`;
}

function Banner({ id, tab, title }) {
  const run = useAsk((signal) => get(runPath(id), {}, signal), [id]);
  const findings = useAsk((signal) => get(runPath(id, "findings"), {}, signal).then((answer) => answer.findings), [id]);
  const goodput = useAsk((signal) => get(runPath(id, "goodput"), {}, signal), [id]);
  if (!run.value) return html`<h1>${title}</h1>`;
  const told = (now) => run.set((old) => old && { ...old, ...now, values: old.values });
  const open = (step, at, attempt) => go(href("run", id, { step, at, attempt }));
  return html`<${RunHead} run=${run.value} goodput=${goodput.value} findings=${findings.value} tab=${tab} live=""
    setTab=${(name) => go(href("run", id, name === "charts" ? {} : { tab: name }))} onStep=${open}
    onEdit=${(wanted, words) => edit(run.value, wanted, words, told)} />`;
}
