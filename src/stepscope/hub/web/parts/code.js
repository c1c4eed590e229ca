// Code to paste, with a button that copies it.
import { html, useState } from "../h.js";
import { Icon } from "./icons.js";

export function Code({ text, label = "Copy" }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone(true);
      setTimeout(() => setDone(false), 1500);
    } catch {
      /* select by hand */
    }
  };
  return html`<div class="code"><pre tabindex="0">${text}</pre>
    <button type="button" class="button code-copy" onClick=${copy}><${Icon} name=${done ? "check" : "copy"} />
      ${done ? "Copied" : label}</button>
    </div>`;
}
