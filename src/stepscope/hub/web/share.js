// A link that shows one run: its token becomes the session of this browser, unless that may read the run already.
import { html, useEffect, useState } from "./h.js";
import { runPath } from "./api.js";
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

// Not through api.js, which asks for a token where one is missing.
async function enter(token, run) {
  const url = "api/" + runPath(run);
  if ((await fetch(url)).ok) return;
  await fetch("api/session", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  if (!(await fetch(url)).ok) throw new Error("It has ended or was revoked");
}
