// Preact and htm, imported by every module of the page from here.
import htm from "./vendor/htm.js";
import { escapeInvisible } from "./parts/invisible.js";
import { Fragment, h } from "./vendor/preact.js";

export { Fragment, render, createContext } from "./vendor/preact.js";
export {
  useCallback,
  useContext,
  useEffect,
  useErrorBoundary,
  useId,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "./vendor/hooks.js";
export const html = htm.bind(visible);

const READ = ["title", "aria-label", "alt"];

// An element whose texts hide nothing: what cannot be seen in them is escaped.
function visible(type, props, ...children) {
  if (typeof type !== "string" && type !== Fragment) return h(type, props, ...children);
  for (const name of READ) if (typeof props?.[name] === "string") props[name] = escapeInvisible(props[name]);
  return h(type, props, ...children.map(readable));
}

function readable(child) {
  if (typeof child === "string") return escapeInvisible(child);
  return Array.isArray(child) ? child.map(readable) : child;
}
