// The scrolling frame of a table with a column for each rank; what matters is brought into sight on narrow screens.
import { html, useLayoutEffect, useRef } from "../h.js";

export function Matrix({ label, focus, children }) {
  const ref = useRef(null);
  useLayoutEffect(() => {
    const box = ref.current,
      cell = box.querySelector("td.cause, td.odd-3, td.at, td.odd-2"),
      head = box.querySelector("tbody th");
    if (!cell || box.scrollWidth <= box.clientWidth) return;
    box.scrollLeft =
      cell.offsetLeft +
      cell.offsetWidth -
      box.clientWidth +
      (head && cell.offsetWidth + head.offsetWidth > box.clientWidth ? -8 : 8);
  }, [focus]);
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label} ref=${ref}>${children}</div>`;
}
