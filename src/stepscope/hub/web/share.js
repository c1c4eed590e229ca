// A link that shows one run: its token becomes the session of this browser, unless that may read the run already.
import { html, useEffect, useState } from "./h.js";
import { fetchJson, get, runPath } from "./api.js";
import { go, href } from "./router.js";
import { Empty, Loading } from "./parts/states.js";

export default function ShareView({ parts: [token, run] }) {
  const [problem, setProblem] = useState("");
  useEffect(() => {
    document.title = "A shared run · Stepscope";
    enter(token, run).then(
      () => go(href("run", run), { replace: true }),
      (error) => setProblem(error.message),
    );
  }, [token, run]);
  return problem
    ? html`<${Empty} title="This link shows nothing any more">${problem}. Ask who sent it for a new one.<//>`
    : html`<${Loading} what="Opening the run" />`;
}

async function enter(token, run) {
  const found = await fetch("api/" + runPath(run));
  if (found.ok) return;
  await fetchJson("api/session", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  await get(runPath(run));
}
