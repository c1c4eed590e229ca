// The one list of views. `name` is the first part of the address, `title` stands in the navigation (none: not there),
// `load` brings the module, whose default export is the component; it gets { parts, query } of the address.
export const VIEWS = [
  { name: "runs", title: "Runs", load: () => import("./views/runs.js") },
  { name: "run", load: () => import("./views/run.js"), within: "runs" },
  { name: "compare", title: "Compare", load: () => import("./views/compare.js") },
  { name: "traces", title: "Traces", load: () => import("./views/traces.js") },
  { name: "logs", title: "Logs", load: () => import("./views/logs.js") },
  { name: "dashboards", title: "Dashboards", load: () => import("./views/dashboards.js") },
  { name: "health", title: "Health", load: () => import("./views/health.js") },
  { name: "sql", title: "SQL", load: () => import("./views/sql.js") },
];
