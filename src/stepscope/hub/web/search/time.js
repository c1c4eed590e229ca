// Moments to the millisecond, short: the day is told when it is not today.
const two = (n) => String(n).padStart(2, "0");

export function instant(time) {
  if (!time) return "–";
  const at = new Date(time * 1000);
  const hour = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  if (at.toDateString() !== new Date().toDateString()) return `${two(at.getMonth() + 1)}-${two(at.getDate())} ${hour}`;
  return `${hour}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}
