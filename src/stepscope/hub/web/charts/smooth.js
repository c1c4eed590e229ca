// Smoothing: an exponential mean that owes nothing to its start, drawn over the raw band and never instead of it.
export function smooth(marks, weight) {
  if (
    marks.smoothed?.weight === weight &&
    marks.smoothed.version === marks.version &&
    marks.smoothed.length === marks.length
  ) {
    return marks.smoothed.values;
  }
  const values = new Array(marks.length);
  let mean = 0,
    share = 0;
  for (let i = 0; i < marks.length; i++) {
    const value = marks.mid[i];
    if (value === null) {
      values[i] = null;
      continue;
    }
    mean = weight * mean + (1 - weight) * value;
    share = weight * share + (1 - weight);
    values[i] = mean / share;
  }
  marks.smoothed = { weight, version: marks.version, length: marks.length, values };
  return values;
}
