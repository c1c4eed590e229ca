// What the page puts on the window, and what browsers have that TypeScript does not know yet.
interface Window {
  /** Answers that early.js asked for before the modules were there, by address. */
  early?: Map<string, Promise<Response>>;
}
interface JSON {
  rawJSON?(text: string): unknown;
}
