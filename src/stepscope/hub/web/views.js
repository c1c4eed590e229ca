// The one list of views. `name` is the first part of the address, `title` stands in the navigation (none: not there),
// `load` brings the module, whose default export is the component; it gets { parts, query } of the address.
export const VIEWS = [
  { name: "runs", title: "Runs", load: () => import("./runs/view.js") },
  { name: "run", load: () => import("./run/view.js"), within: "runs" },
  { name: "compare", title: "Compare", load: () => import("./compare/view.js") },
  { name: "traces", title: "Traces", load: () => import("./trace/view.js") },
  { name: "logs", title: "Logs", load: () => import("./log/view.js") },
  { name: "alerts", title: "Alerts", load: () => import("./alerts/view.js") },
  { name: "dashboards", title: "Dashboards", load: () => import("./dashboards/view.js") },
  { name: "health", title: "Health", load: () => import("./health/view.js") },
  { name: "sql", title: "SQL", load: () => import("./sql/view.js") },
];
