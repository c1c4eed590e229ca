// What stands where data will be, cannot be, or is not yet.
import { html } from "../h.js";

export function Loading({ what = "Loading" }) {
  return html`<div class="state" role="status"><span class="pulse" aria-hidden="true"></span><p>${what}…</p></div>`;
}

export function Empty({ title, children }) {
  return html`<div class="state"><p class="state-title">${title}</p>
    ${children && html`<div class="state-text">${children}</div>`}</div>`;
}

// An error with what can be done about it; `again` tries once more.
export function Failure({ error, again }) {
  const lost = error.status === 0;
  return html`<div class="state failed" role="alert">
    <p class="state-title">${lost ? "The hub does not answer" : "That did not work"}</p>
    <div class="state-text">
      ${lost ? "It may have been stopped. Start it with stepscope hub; this page comes back by itself." : error.message}
    </div>
    ${again && html`<button class="button" onClick=${again}>Try again</button>`}
  </div>`;
}

// The usual three ways of a question asked with useAsk; children is a function of the value.
export function Asked({ asked, what, children }) {
  if (asked.value !== undefined) return children(asked.value);
  if (asked.error) return html`<${Failure} error=${asked.error} again=${asked.again} />`;
  return html`<${Loading} what=${what} />`;
}
