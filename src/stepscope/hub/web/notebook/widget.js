// A view of runs in a notebook, as anywidget hosts it: a frame with the page's own charts, which shows what the kernel sends.
// The frame has no address, fetches nothing, and has a document and styles of its own.

// Notebooks say whether they are dark.
const isDark = () => {
  const { jpThemeLight, vscodeThemeKind } = document.body.dataset;
  if (jpThemeLight) return jpThemeLight === "false";
  if (vscodeThemeKind) return vscodeThemeKind.includes("dark");
  return matchMedia("(prefers-color-scheme: dark)").matches;
};

function render({ model, el }) {
  const frame = document.createElement("iframe");
  frame.title = "Stepscope";
  frame.style.cssText = `border: 0; width: 100%; height: ${model.get("height")}px`;
  frame.srcdoc = model.get("page").replace("<html", `<html data-theme="${isDark() ? "dark" : "light"}"`);
  const show = () => {
    const inside = /** @type {any} */ (frame.contentWindow);
    if (inside) inside.latestView = model.get("view"); // for modules that are not loaded yet
    inside?.showRuns?.(model.get("view"));
  };
  const fit = () => {
    const shown = frame.contentDocument?.getElementById("shown");
    if (!shown) return;
    new ResizeObserver(() => {
      frame.style.height = `${Math.min(model.get("height"), shown.offsetHeight + 2)}px`;
    }).observe(shown);
  };
  frame.addEventListener("load", show);
  frame.addEventListener("load", fit);
  model.on("change:view", show);
  el.append(frame);
  return () => model.off("change:view", show);
}

export default { render };
