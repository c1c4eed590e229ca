// The crosshair that the charts of a group share: where one of them points, all of them are read.
const groups = new Map();

// Take part in a group; returns the function that leaves it.
export function join(group, plot) {
  if (!group) return () => {};
  if (!groups.has(group)) groups.set(group, new Set());
  groups.get(group).add(plot);
  return () => groups.get(group).delete(plot);
}

// Let the other charts of the group read at x; null takes the crosshair away.
export function point(group, plot, x, line) {
  for (const other of groups.get(group) || []) if (other !== plot) other.follow(x, line);
}
