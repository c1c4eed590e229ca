// Groups of runs as lines: the mean of the runs of a group at each place along x, and their spread.
import { Marks } from "../charts/marks.js";

/**
 * One line for each group. `groupOf` names the group of a run, `styles` has the style of each group.
 * @param {any[]} lines
 * @param {(run: string) => string | undefined} groupOf
 */
export function groupLines(lines, groupOf) {
  const groups = new Map();
  for (const line of lines) {
    const name = groupOf(line.run);
    if (name === undefined) continue;
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(line);
  }
  return [...groups].map(([name, members]) => ({ name, members, marks: averaged(members) }));
}

// Buckets begin at multiples of their width, a power of two, so those of several answers lie within each other.
function averaged(lines) {
  const width = Math.max(...lines.map((line) => line.width)),
    places = new Map();
  for (const { marks } of lines) {
    // A run counts once in a bucket, by the mean of its marks there.
    const own = new Map();
    for (let i = 0; i < marks.length; i++) {
      const at = Math.floor(marks.x[i] / width),
        value = marks.mid[i];
      const mine = own.get(at) ?? { x: marks.x[i], last: marks.last[i], sum: 0, n: 0, count: 0, flags: 0 };
      mine.last = marks.last[i];
      mine.count += marks.count[i];
      mine.flags |= marks.flags[i];
      if (value !== null) {
        mine.sum += value;
        mine.n++;
      }
      own.set(at, mine);
    }
    for (const [at, mine] of own) {
      if (!places.has(at)) places.set(at, []);
      places.get(at).push(mine);
    }
  }
  const made = new Marks(Infinity);
  for (const at of [...places.keys()].sort((a, b) => a - b)) {
    const here = places.get(at),
      values = here.filter(({ n }) => n > 0).map(({ sum, n }) => sum / n);
    const mean = values.length ? values.reduce((a, b) => a + b, 0) / values.length : null;
    made.x.push(Math.min(...here.map(({ x }) => x)));
    made.last.push(Math.max(...here.map(({ last }) => last)));
    made.mid.push(mean);
    made.low.push(values.length ? Math.min(...values) : null);
    made.high.push(values.length ? Math.max(...values) : null);
    made.sum.push((mean ?? 0) * values.length);
    made.good.push(values.length);
    made.count.push(here.reduce((sum, { count }) => sum + count, 0));
    made.flags.push(here.reduce((all, { flags }) => all | flags, 0));
    made.lowRank.push(null);
    made.highRank.push(null);
  }
  made.flagged = made.flags.reduce((all, flag) => all | flag, 0);
  made.wide = made.low.some((low, i) => low !== null && (made.high[i] ?? low) > low);
  made.total = lines.reduce((sum, { marks }) => sum + marks.total, 0);
  return made;
}
