// All projects: how many runs each has, how many run now, when something was last recorded, and what went wrong.
import { html, useEffect, useState } from "../h.js";
import { get } from "../api.js";
import { go, href } from "../router.js";
import { useFetch, useMedia, useNow } from "../use.js";
import { Search } from "../parts/controls.js";
import { ago, clock, count } from "../parts/format.js";
import { Empty, Fetched, NoneYet } from "../parts/states.js";
import { VirtualTable } from "../parts/table.js";

const EVERY_MS = 5000;

export default function ProjectsView() {
  const fetched = useFetch((signal) => get("projects", {}, signal).then((answer) => answer.projects), []);
  const now = useNow(EVERY_MS);
  const [search, setSearch] = useState("");
  const narrow = useMedia("(max-width: 640px)");
  useEffect(() => {
    if (!fetched.loading) fetched.reload();
  }, [now]);
  return html`<div class="page fill projects">
    <div class="page-head"><h1>Projects</h1>
      <${Search} label="Find a project" placeholder="Find a project  /" value=${search} onChange=${setSearch} /></div>
    <${Fetched} fetched=${fetched} what="Loading projects">${(projects) => {
      const rows = projects.filter(({ project }) => project.toLowerCase().includes(search.toLowerCase()));
      if (!projects.length)
        return html`<${NoneYet} reload=${fetched.reload}><${Empty} title="No projects yet">A project appears with its first run:${" "}
          <a href=${href("runs")}>how to record one</a>.<//><//>`;
      if (!rows.length) return html`<${Empty} title="No project matches">No name contains “${search}”.<//>`;
      return html`<${VirtualTable} label="Projects" columns=${columnsOf(now, narrow)} rows=${rows} keyOf=${(row) => row.project}
        rowHeight=${40} onOpen=${(row) => go(href("project", row.project))} />`;
    }}<//>
  </div>`;
}

const none = html`<span class="muted">–</span>`;

const columnsOf = (now, narrow) => columnsAt(now).filter(({ id }) => !narrow || id !== "running");

const columnsAt = (now) => [
  {
    id: "project",
    title: "project",
    width: "minmax(60px, 2fr)",
    cell: (row) =>
      html`<a class="run-link" tabindex="-1" href=${href("project", row.project)}><span class="name-start">${row.project}</span></a>`,
  },
  {
    id: "runs",
    title: "runs",
    width: "minmax(48px, 90px)",
    align: "right",
    cell: (row) => html`<span>${count(row.runs)}</span>`,
  },
  {
    id: "running",
    title: "running",
    width: "minmax(62px, 100px)",
    align: "right",
    cell: (row) =>
      row.running ? html`<span class="status running"><span class="sign">●</span>${count(row.running)}</span>` : none,
  },
  {
    id: "findings",
    title: "findings",
    hint: "Runs with findings",
    width: "minmax(66px, 110px)",
    align: "right",
    cell: (row) =>
      row.findings
        ? html`<span class=${row.worst === "WARN" ? "warn-text" : "bad-text"} title=${`worst: ${row.worst}`}
            >▲ ${count(row.findings)}</span>`
        : none,
  },
  {
    id: "seen",
    title: "last record",
    width: "minmax(84px, 1fr)",
    align: "right",
    cell: (row) => html`<span title=${clock(row.seen, { exact: true })}>${ago(row.seen, now)}</span>`,
  },
];
