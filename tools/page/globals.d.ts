// What early.js leaves for api.js, and what browsers have that TypeScript does not know yet.
/** Answers that were requested before the modules were there, by address. */
declare var early: Map<string, Promise<Response>> | undefined;
interface JSON {
  rawJSON?(text: string): unknown;
}
