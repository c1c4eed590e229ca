// Events and alerts of a run, placed along x.
export function flagsOf(records, kind, origin) {
  if (kind === "metric") return [];
  const made = [],
    there = new Set();
  for (const record of records) {
    const x = kind === "step" ? record.step : kind === "time" ? record.time : origin ? record.time - origin : null;
    if (x === null || x === undefined) continue;
    // Every rank may say the same of a step; one flag is enough.
    const same = kind === "step" && `${x} ${record.kind} ${record.name}`;
    if (same && there.has(same)) continue;
    there.add(same);
    made.push({ x, kind: record.kind, colour: colourOf(record), record });
  }
  return made;
}

export function colourOf(record) {
  if (record.severity_number >= 17) return "--bad";
  if (record.severity_number >= 13 || record.kind === "alert") return "--warn";
  return "--muted";
}
