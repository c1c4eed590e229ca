// Preact and htm, imported by every module of the page from here.
import htm from "./vendor/htm.js";
import { h } from "./vendor/preact.js";

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
export const html = htm.bind(h);
