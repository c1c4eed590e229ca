// Runs before every module: the page of a run asks its first questions while the browser still reads the scripts.
(() => {
  const run = /^#\/run\/([^/?]+)/.exec(location.hash);
  if (!run) return;
  const path = "api/runs/" + run[1];
  window.early = new Map([path, path + "/keys"].map((url) => [url, fetch(url)]));
  for (const asked of window.early.values()) asked.catch(() => {}); // whoever takes the answer says what is wrong
  import("./run/view.js");
})();
