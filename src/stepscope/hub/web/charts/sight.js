// Who is near the screen: one observer for all, with a margin so that scrolling finds things ready.
const watched = new Map();
let observer = null;

export function inSight(element, told) {
  observer ??= new IntersectionObserver(
    (entries) => {
      for (const entry of entries) watched.get(entry.target)?.(entry.isIntersecting);
    },
    { rootMargin: "300px 0px" },
  );
  watched.set(element, told);
  observer.observe(element);
  return () => {
    watched.delete(element);
    observer.unobserve(element);
  };
}
