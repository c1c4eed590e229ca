// Runs in groups, and the fields by which they are grouped and filtered.
import { count } from "../parts/format.js";
import { groupOf, tagFields, tagValues } from "./columns.js";

/** Rows with a heading before each group; those of a closed group are left out. */
export function grouped(rows, by, closed) {
  if (!by) return rows;
  const groups = new Map();
  for (const run of rows) {
    const name = groupOf(run, by) || "–";
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(run);
  }
  return [...groups].flatMap(([name, list]) => [
    { heading: name, size: list.length, open: !closed.has(name) },
    ...(closed.has(name) ? [] : list),
  ]);
}

export const groupChoices = (fields) => [
  ["", "not grouped"],
  ["project", "project"],
  ["status", "status"],
  ["hosts", "host"],
  ["group", "group"],
  ...fields.tags.slice(0, 30).map(({ name }) => ["tag." + name, `tag ${name}`]),
  ...fields.config.slice(0, 60).map(({ name }) => ["config." + name, name]),
];

/** What the filter completes: fields, with how many runs have them. */
export function fieldNames(fields) {
  return [
    ...fields.plain.map((name) => ({ name, hint: "" })),
    ...tagFields(fields),
    ...fields.metrics
      .filter(({ name }) => !name.startsWith("stepscope/"))
      .map(({ name, runs }) => ({ name: "metrics." + name, hint: `${count(runs)} runs` })),
    ...fields.config.map(({ name, runs }) => ({ name: "config." + name, hint: `${count(runs)} runs` })),
  ];
}

/** The values of a field that the filter completes. */
export function fieldValues(field, rows, fields) {
  if (field === "project") return fields.projects;
  if (field === "archived") return ["true", "false"];
  const tags = tagValues(field, rows, fields);
  if (tags) return tags;
  if (!/^(name|id|hosts|group|job_type|config\..*)$/.test(field)) return [];
  return [
    ...new Set(
      rows.slice(0, 2000).map((run) => (field.startsWith("config.") ? groupOf(run, field) : plainOf(run, field))),
    ),
  ]
    .filter((value) => value && value !== "–")
    .slice(0, 200);
}

const plainOf = (run, field) => (field === "hosts" ? run.hosts[0] : run[field]);
