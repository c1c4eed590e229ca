// A link that shows one run or one project: its token becomes the session of this browser, unless that may read it already.
import { html, useEffect, useState } from "../h.js";
import { address, runPath } from "../api.js";
import { go, href } from "../router.js";
import { Empty, Loading } from "../parts/states.js";

export default function ShareView({ parts: [token, run], query }) {
  const [problem, setProblem] = useState("");
  const project = query.get("project") ?? "";
  useEffect(() => {
    document.title = `A shared ${run ? "run" : "project"} · Stepscope`;
    const shown = new URLSearchParams(query); // the view that was shared
    shown.delete("project");
    enter(token, run ? "api/" + runPath(run) : address("views", { project })).then(
      () => go(run ? href("run", run, shown) : href("project", project, shown), { replace: true }),
      (error) => setProblem(error.message),
    );
  }, [token, run, project]);
  return problem
    ? html`<${Empty} title="This link shows nothing any more">${problem}. Ask who sent it for a new one.<//>`
    : html`<${Loading} what=${`Opening the ${run ? "run" : "project"}`} />`;
}

// Not through api.js, which asks for a token where one is missing.
async function enter(token, url) {
  if ((await fetch(url)).ok) return;
  await fetch("api/session", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  if (!(await fetch(url)).ok) throw new Error("It has ended or was revoked");
}
