// The runs of a workspace: an eye to show or hide each, its colour, name, state and findings; search, order and groups.
import { html, useMemo, useState } from "../h.js";
import { change, go, href } from "../router.js";
import { IconButton, IconMenu, Icon, Select, Swatch } from "../parts/controls.js";
import { count } from "../parts/format.js";
import { VirtualTable } from "../parts/table.js";
import { highlight, useHighlighted } from "../charts/highlight.js";
import { Chooser, column, groupOf, twoLines } from "../runs/columns.js";
import { Filter } from "../runs/filter.js";
import { fieldNames, fieldValues, groupChoices, grouped } from "../runs/grouping.js";
import { Spread } from "../runs/spread.js";
import { USUAL } from "./state.js";

const ORDERS = [
  ["-started", "newest"],
  ["started", "oldest"],
  ["name", "name"],
  ["-seen", "last record"],
  ["-findings", "findings"],
  ["-duration", "duration"],
];

export function RunList(given) {
  const {
    runs,
    fields,
    filter,
    sort,
    by,
    wrong,
    groups,
    visible,
    styles,
    ids: columnIds,
    facts,
    setColumns,
    now,
    toggle,
  } = given;
  const [closed, setClosed] = useState(() => new Set());
  const focus = useHighlighted();
  const rows = useMemo(() => grouped(runs.rows, by, closed, runs.groups), [runs.rows, runs.groups, by, closed]);
  const orders = [
    ...ORDERS,
    ...facts.flatMap((id) => [
      [id, `${column(id, {})?.title} ↑`],
      ["-" + id, `${column(id, {})?.title} ↓`],
    ]),
  ];
  if (!orders.some(([id]) => id === sort)) orders.push([sort, sort]);
  const fold = (row) =>
    setClosed((old) => {
      const made = new Set(old);
      if (!made.delete(row.heading)) made.add(row.heading);
      return made;
    });
  const members = (row) => runs.rows.filter((run) => (groupOf(run, by) || "–") === row.heading).map((run) => run.id);
  const columns = useMemo(
    () => columnsOf({ ...given, members, groups, styles, visible, toggle }),
    [runs.rows, visible, styles, groups, now, facts.join()],
  );
  // The line of a row in the charts: that of the run, or of its group.
  const lineOf = (row) => (row.heading || groups ? "group " + (row.heading ?? groups.of.get(row.id)) : row.id);
  const ids = runs.rows.map((run) => run.id);
  return html`<section class="workspace-list" aria-label="Runs">
    <${Filter} value=${filter} onChange=${(text) => change({ filter: text })} problem=${wrong}
        fields=${fieldNames(fields)} valuesOf=${(field) => fieldValues(field, runs.rows, fields)} />
    <div class="workspace-list-bar">
      <${Select} label="Group runs" value=${by} onChange=${(next) => change({ group: next })}
          options=${groupChoices(fields)} />
      <${Select} label="Sort runs" value=${sort} onChange=${(next) => change({ sort: next === "-started" ? null : next })}
          options=${orders} />
      <${IconMenu} icon="columns" label="Values of each run" align="right">
        <${Chooser} chosen=${columnIds} fields=${fields} onChange=${setColumns} onReset=${() => setColumns(USUAL)} values /><//>
      <${IconMenu} icon="eye" label="Which runs are visible" align="right">${(close) => html`
        <button type="button" class="item" onClick=${() => {
          close();
          change({ run: null, hide: null, show: null });
        }}>The first 50</button>
        <button type="button" class="item" onClick=${() => {
          close();
          toggle(ids.slice(0, MAX_SHOWN), true);
        }}>All${ids.length > MAX_SHOWN ? `, at most ${count(MAX_SHOWN)}` : ""}</button>
        <button type="button" class="item" onClick=${() => {
          close();
          toggle(ids, false);
        }}>None</button>`}<//>
    </div>
    <p class="muted workspace-count" role="status">${count(visible.size)} of ${count(runs.matched)} visible</p>
    <${VirtualTable} label="Runs" columns=${columns} rows=${rows} rowHeight=${46} question=${[filter, by].join("\n")} sort=${sort}
        keyOf=${(row) => (row.heading ? "group " + row.heading : row.id)} onSeen=${(shown) => runs.see(shown.filter((row) => !row.heading))}
        onToggle=${(row) => (row.heading ? fold(row) : toggle([row.id], !visible.has(row.id)))}
        onOpen=${(row) => (row.heading ? fold(row) : go(href("run", row.id)))}
        onPoint=${(row) => highlight(row && lineOf(row))}
        rowClass=${(row) =>
          row.heading
            ? "heading" + (focus === "group " + row.heading ? " on" : "")
            : (visible.has(row.id) ? "" : "dim") + (focus === row.id ? " on" : "")} />
  </section>`;
}

const MAX_SHOWN = 1000;

function columnsOf({ members, groups, styles, visible, toggle, facts, now, onRemove }) {
  const two = twoLines(facts, { now });
  const status = column("status", {});
  return [
    {
      id: "eye",
      title: "Visible",
      head: html`<span class="sr">Visible</span>`,
      width: "34px",
      cell: (row) => {
        const ids = row.heading ? members(row) : [row.id],
          on = ids.some((id) => visible.has(id)),
          name = row.heading ? `group ${row.heading}` : row.name || row.id;
        return html`<${IconButton} icon=${on ? "eye" : "closed"} label=${`${on ? "Hide" : "Show"} ${name}`}
            onClick=${() => toggle(ids, !on)} />`;
      },
    },
    {
      id: "colour",
      title: "Colour",
      head: html`<span class="sr">Colour</span>`,
      width: "22px",
      cell: (row) =>
        row.heading
          ? html`<${Swatch} at=${groups?.styles.get(row.heading) ?? 0} />`
          : groups
            ? null
            : html`<${Swatch} at=${styles.get(row.id) ?? 0} />`,
    },
    {
      ...status,
      sortable: undefined,
      head: html`<span class="sr">Status</span>`,
      width: "24px",
      cell: (row) => (row.heading ? null : status?.cell(row)),
    },
    {
      ...two,
      cell: (row) =>
        row.heading
          ? html`<div class="run-two">
              <div><span class="group-title"><${Icon} name=${row.open ? "down" : "right"} size=${11} />
                <span class="wide-name">${row.heading}</span>
                <span class="muted">${count(row.size)}</span></span></div>
              <div class="run-state"><span class="run-facts">${facts
                .filter((id) => row.columns[id])
                .map(
                  (
                    id,
                  ) => html`<span key=${id} class="run-fact"><span class="muted">${column(id, {})?.title}</span>${" "}
                    <${Spread} id=${id} row=${row} /></span>`,
                )}</span></div></div>`
          : two.cell(row),
    },
    ...(onRemove
      ? [
          {
            id: "remove",
            title: "Remove",
            head: html`<span class="sr">Remove</span>`,
            width: "34px",
            cell: (row) =>
              row.heading
                ? null
                : html`<${IconButton} icon="close" label=${`Remove ${row.name || row.id}`} onClick=${() => onRemove(row.id)} />`,
          },
        ]
      : []),
  ];
}
