// A dashboard as text: checked while one writes, mistakes marked at their line, kept under a name.
import { html, useEffect, useRef, useState } from "../h.js";
import { ask, address, post } from "../api.js";
import { useSettled } from "../use.js";

export const NAME = /^[a-z0-9][a-z0-9_-]{0,62}$/;

// onDraft(dashboard) is told what the text says now; onKept(name) when it was kept.
export function Editor({ source, onDraft, onKept, onDeleted, onClose }) {
  const [text, setText] = useState(source.yaml);
  const [name, setName] = useState(source.builtin || !source.name ? "" : source.name);
  const [mistake, setMistake] = useState(source.mistake);
  const [failure, setFailure] = useState("");
  const [busy, setBusy] = useState(false);
  const settled = useSettled(text, 250);
  const lines = text.split("\n").length;
  const area = useRef(null),
    gutter = useRef(null);
  useEffect(() => area.current.focus(), []);
  useEffect(() => {
    let gone = false;
    post("dashboards", { yaml: settled }).then(
      (answer) => {
        if (gone) return;
        setMistake(answer.mistake);
        setFailure("");
        if (answer.dashboard) onDraft(answer.dashboard);
      },
      (error) => {
        if (!gone) setFailure(error.message);
      },
    );
    return () => {
      gone = true;
    };
  }, [settled]);

  const put = async (method, body) =>
    ask(address(`dashboards/${name}`), {
      method,
      headers: { "Content-Type": "application/json" },
      body: body && JSON.stringify(body),
    });
  const keep = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await put("PUT", { yaml: text });
      onKept(name);
    } catch (error) {
      setFailure(error.message);
    }
    setBusy(false);
  };
  const remove = async () => {
    if (!confirm(`Delete the dashboard ${name}?`)) return;
    try {
      await put("DELETE");
      onDeleted();
    } catch (error) {
      setFailure(error.message);
    }
  };
  const close = () => {
    if (text === source.yaml || confirm("Close, and lose what you wrote?")) onClose();
  };
  const keys = (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "s") {
      event.preventDefault();
      event.target.form.requestSubmit();
    } else if (event.key === "Escape") {
      event.preventDefault();
      close();
    }
  };
  const named = NAME.test(name);
  const mine = !source.builtin && source.name && name === source.name;
  return html`<form class="dash-editor panel" onSubmit=${keep} aria-label="Edit the dashboard">
    <div class="dash-editor-bar">
      <label class="field"><span class="field-label">Name</span>
        <input value=${name} onInput=${(event) => setName(event.target.value.trim())} placeholder="my-dashboard"
            aria-invalid=${String(!!name && !named)} spellcheck=${false} autocomplete="off" />
        </label>
      <span class="grow"></span>
      ${mine && html`<button type="button" class="button" onClick=${remove}>Delete</button>`}
      <button type="button" class="button" onClick=${close}>Close</button>
      <button class="button primary" disabled=${!named || !!mistake || busy} title="Ctrl + S">Keep</button>
    </div>
    <div class="dash-text">
      <div class="dash-gutter" ref=${gutter} aria-hidden="true">
        ${Array.from(
          { length: lines },
          (_, at) => html`<span key=${at} class=${mistake?.line === at + 1 ? "wrong" : ""}>${at + 1}</span>`,
        )}
      </div>
      <textarea ref=${area} value=${text} aria-label="The dashboard as YAML" aria-invalid=${String(!!mistake)}
          aria-describedby="dash-mistake" spellcheck=${false} wrap="off"
        onInput=${(event) => setText(event.target.value)} onKeyDown=${keys} onScroll=${(event) => {
          gutter.current.scrollTop = event.target.scrollTop;
        }}></textarea>
    </div>
    <p class=${"dash-mistake" + (mistake || failure ? " bad-text" : " muted")} id="dash-mistake" role="status">
      ${mistake ? `Line ${mistake.line}: ${mistake.message}` : failure || hint(name, named, source)}</p>
  </form>`;
}

function hint(name, named, source) {
  if (name && !named) return "A name has small letters, digits, - and _, and begins with a letter or digit.";
  if (!name)
    return source.builtin ? "Built-in dashboards stay as they are: give yours a name." : "Give it a name to keep it.";
  return "It is right so far. The charts below follow what you write.";
}
