// Drawing on canvases: sharp on every screen, in the colours of the theme.
import { SERIES, colour } from "../theme.js";

export function prepare(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

// The colours of the theme at once; asking the style for each span would be slow.
export function palette() {
  const of = Object.fromEntries(
    [
      "ink",
      "ink-2",
      "muted",
      "panel",
      "line",
      "line-strong",
      "grid",
      "bad",
      "bad-soft",
      "accent",
      "sunken",
      "hover",
      "ghost",
    ].map((name) => [name, colour("--" + name)]),
  );
  of.series = Array.from({ length: SERIES }, (_, at) => colour(`--series-${at + 1}`));
  return of;
}

export function fitted(pen, text, width) {
  if (width < 14) return "";
  const most = Math.floor(width / 5.6);
  return text.length <= most ? text : most < 4 ? "" : text.slice(0, most - 1) + "…";
}
