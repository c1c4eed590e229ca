// Boxes and masks over an image, each group of which can be hidden.
import { html, useEffect, useRef, useState } from "../h.js";
import { fetchJson } from "../api.js";
import { useFetch } from "../use.js";
import { colour } from "../theme.js";

const BOXES = 1000, // of one group that are drawn
  PIXELS = 4096 * 4096; // of a mask that is drawn

/**
 * An image with what is drawn over it. `source` gives the address of a file by its name.
 * @param {{ file: any, source: (name: string) => string, children?: any }} given
 */
export function Layered({ file, source, children }) {
  const [size, setSize] = useState(/** @type {[number, number] | null} */ (null));
  const [hidden, setHidden] = useState(/** @type {string[]} */ ([]));
  const [classes, setClasses] = useState(/** @type {Record<string, number[]>} */ ({}));
  const label = (layer) => `${layer.group} ${layer.kind}`;
  const toggle = (name) =>
    setHidden((old) => (old.includes(name) ? old.filter((each) => each !== name) : [...old, name]));
  const shown = file.layers.filter((layer) => !hidden.includes(label(layer)));
  const measure = (event) => setSize([event.target.naturalWidth, event.target.naturalHeight]);
  return html`<div class="layered" onLoadCapture=${measure}>${children}
      ${
        size &&
        shown
          .filter((each) => each.kind === "mask")
          .map(
            (each) => html`<${MaskLayer} key=${each.name} layer=${each} source=${source}
          onClasses=${(found) => setClasses((old) => ({ ...old, [each.name]: found }))} />`,
          )
      }
      ${
        size &&
        shown
          .filter((each) => each.kind === "boxes")
          .map((each) => html`<${BoxLayer} key=${each.name} layer=${each} source=${source} size=${size} />`)
      }
    </div>
    <div class="layer-names">${file.layers.map(
      (layer) => html`<label key=${layer.name}>
      <input type="checkbox" checked=${!hidden.includes(label(layer))} onChange=${() => toggle(label(layer))} />${label(layer)}</label>`,
    )}</div>
    ${shown.map((layer) => html`<${Classes} key=${layer.name} layer=${layer} classes=${classes[layer.name] || []} />`)}`;
}

const shade = (at) => `var(--series-${(Math.abs(at) % 20) + 1})`;
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

function BoxLayer({ layer, source, size: [width, height] }) {
  const fetched = useFetch((signal) => fetchJson(source(layer.name), { signal }), [layer.name]);
  if (!fetched.value) return null;
  const boxes = boxesOf(fetched.value, width, height),
    line = Math.max(width, height) / 220,
    letters = Math.max(width, height) / 20;
  return html`<svg viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" role="img"
      aria-label=${`${boxes.length} boxes of ${layer.group}`}>
    ${boxes.map(
      (box, at) => html`<g key=${at}><rect x=${box.x} y=${box.y} width=${box.width} height=${box.height}
        fill="none" stroke=${shade(box.class)} stroke-width=${line} />
      <text x=${box.x + line} y=${box.y + letters} font-size=${letters} stroke-width=${letters / 8}
        fill=${shade(box.class)}>${box.text}</text>
      <title>${box.text}</title></g>`,
    )}</svg>`;
}

// Boxes in pixels from what a client wrote: edges, or a middle with a width and a height, in pixels or parts of the image.
export function boxesOf(data, width, height) {
  const given = Array.isArray(data?.box_data) ? data.box_data.slice(0, BOXES) : [];
  const labels = data?.class_labels && typeof data.class_labels === "object" ? data.class_labels : {};
  const found = [];
  for (const each of given) {
    const at = each?.position || {},
      [across, up] = each?.domain === "pixel" ? [1, 1] : [width, height];
    const middle = Array.isArray(at.middle) ? at.middle : [];
    const edges = middle.length
      ? [middle[0] - at.width / 2, middle[1] - at.height / 2, middle[0] + at.width / 2, middle[1] + at.height / 2]
      : [at.minX, at.minY, at.maxX, at.maxY];
    if (!edges.every(isNumber)) continue;
    const name = each.box_caption || labels[each.class_id] || (isNumber(each.class_id) ? `class ${each.class_id}` : "");
    const score = Object.values(each.scores || {}).find(isNumber);
    found.push({
      x: edges[0] * across,
      y: edges[1] * up,
      width: Math.max(0, (edges[2] - edges[0]) * across),
      height: Math.max(0, (edges[3] - edges[1]) * up),
      class: isNumber(each.class_id) ? each.class_id : 0,
      text: String(name).slice(0, 100) + (score === undefined ? "" : ` ${score.toFixed(2)}`),
    });
  }
  return found;
}

// The class of each pixel, in the colour of the class; class 0 is the background and stays clear.
function MaskLayer({ layer, source, onClasses }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  useEffect(() => {
    const image = new Image();
    image.onload = () => {
      if (canvas.current && image.width * image.height <= PIXELS) onClasses(paint(canvas.current, image));
    };
    image.src = source(layer.name);
    return () => {
      image.onload = null;
    };
  }, [layer.name]);
  return html`<canvas ref=${canvas} role="img" aria-label=${`mask of ${layer.group}`}></canvas>`;
}

// The classes that a mask has, with their colours.
function Classes({ layer, classes }) {
  if (!classes.length) return null;
  return html`<ul class="chart-lines" aria-label=${`Classes of ${layer.group}`}>${classes
    .slice(0, 20)
    .map(
      (each) =>
        html`<li key=${each}><i style=${`background: ${shade(each)}`}></i>${layer.labels[each] || `class ${each}`}</li>`,
    )}</ul>`;
}

function paint(canvas, image) {
  canvas.width = image.width;
  canvas.height = image.height;
  const context = canvas.getContext("2d");
  if (!context) return [];
  context.drawImage(image, 0, 0);
  const pixels = context.getImageData(0, 0, image.width, image.height),
    colours = Array.from({ length: 20 }, (_, at) => channels(colour(`--series-${at + 1}`)));
  const classes = recolour(pixels.data, colours);
  context.putImageData(pixels, 0, 0);
  return classes;
}

/**
 * Give each pixel the colour of its class, which is its first channel; returns the classes that there are.
 * @param {Uint8ClampedArray} data
 * @param {number[][]} colours
 */
export function recolour(data, colours) {
  const table = new Uint32Array(256),
    channelsOf = new Uint8Array(table.buffer),
    seen = new Uint8Array(256),
    pixels = new Uint32Array(data.buffer, data.byteOffset, data.length / 4);
  for (let each = 0; each < 256; each++) channelsOf.set([...colours[each % colours.length], each ? 130 : 0], 4 * each);
  for (let at = 0; at < pixels.length; at++) {
    const each = data[4 * at];
    seen[each] = 1;
    pixels[at] = table[each];
  }
  return [...seen.keys()].filter((each) => each && seen[each]);
}

// The three channels of a colour such as #1368aa.
const channels = (text) => [1, 3, 5].map((at) => parseInt(text.trim().slice(at, at + 2), 16) || 0);
