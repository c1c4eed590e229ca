// Runs before every module: the page of a run sends its first requests while the browser still reads the scripts.
(() => {
  const run = /^#\/run\/([^/?]+)/.exec(location.hash);
  if (!run || run[1] === "latest") return;
  const path = "api/runs/" + run[1];
  window.early = new Map([path, path + "/keys"].map((url) => [url, fetch(url)]));
  for (const response of window.early.values()) response.catch(() => {}); // fetchJson reports what went wrong
  import("./run/view.js");
})();
