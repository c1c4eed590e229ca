// Line icons, drawn on a grid of 16; they take the colour of the text around them.
import { html } from "../h.js";

const PATHS = {
  close: "M4 4l8 8M12 4l-8 8",
  left: "M10 3L5 8l5 5",
  right: "M6 3l5 5-5 5",
  down: "M3 6l5 5 5-5",
  up: "M3 10l5-5 5 5",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM11 11l3.5 3.5",
  pin: "M6 2h4l-.5 5 2.5 2.5H4L6.5 7zM8 9.5V14",
  wide: "M9.5 2.5h4v4M6.5 13.5h-4v-4M13.5 2.5L9 7M2.5 13.5L7 9",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  moon: "M13.5 9.5A6 6 0 1 1 6.5 2.5a5 5 0 0 0 7 7z",
  auto: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 2v12M8 5h5M8 8h6M8 11h5",
  menu: "M2 4h12M2 8h12M2 12h12",
  columns: "M2.5 2.5h11v11h-11zM6.5 2.5v11M10 2.5v11",
  flag: "M4 14V2h8l-2 3 2 3H4",
  skip: "M3 3l5 5-5 5M9 3l5 5-5 5",
  back: "M13 3L8 8l5 5M7 3L2 8l5 5",
  check: "M3 8.5l3.5 3.5L13 4.5",
  copy: "M5.5 5.5h8v8h-8zM2.5 10.5v-8h8",
  plus: "M8 3v10M3 8h10",
  pencil: "M3 13l.7-3L11 2.700l2.300 2.300L6 12.300zM9.500 4.200l2.300 2.300",
  warn: "M8 2l6.5 11.5h-13zM8 6.5v3M8 11.700v.1",
};

export function Icon({ name, size = 14 }) {
  return html`<svg class="icon" width=${size} height=${size} viewBox="0 0 16 16" aria-hidden="true"
      focusable="false"><path d=${PATHS[name]} /></svg>`;
}
