// Runs in groups, and the fields by which they are grouped and filtered.
import { counted, plain } from "../parts/format.js";
import { groupOf, tagFields, tagValues } from "./columns.js";

/**
 * Rows with a heading before each group; those of a closed group are left out. The hub has the groups in their order,
 * with statistics over all of their runs, also of those that are not loaded.
 */
export function grouped(rows, by, closed, groups = []) {
  if (!by) return rows;
  const made = new Map(groups.map((group) => [nameOf(group.shared), { ...group, list: [] }]));
  for (const run of rows) {
    const name = groupOf(run, by) || "–";
    if (!made.has(name)) made.set(name, { runs: null, columns: {}, list: [] });
    made.get(name).list.push(run);
  }
  return [...made].flatMap(([name, { runs, columns, list }]) => [
    { heading: name, size: runs ?? list.length, columns, open: !closed.has(name) },
    ...(closed.has(name) ? [] : list),
  ]);
}

const nameOf = (shared) => (Array.isArray(shared) ? shared.join(", ") : plain(shared)) || "–";

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
      .map(({ name, runs }) => ({ name: "metrics." + name, hint: counted(runs) })),
    ...fields.config.map(({ name, runs }) => ({ name: "config." + name, hint: counted(runs) })),
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
