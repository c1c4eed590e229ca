// The nearest steps at which something was wrong: those that the step's answer tells, and those that findings name.
import { get, runPath } from "../api.js";
import { useAsk } from "../use.js";

const KEPT_MS = 30000;
let kept = { run: null, until: 0, found: null };

// Findings are of the whole run and may take the hub a while: what was found just now is found again.
function findings(run) {
  if (kept.run !== run || kept.until < Date.now()) {
    const found = get(runPath(run, "findings")).then((answer) => answer.findings);
    kept = { run, until: Date.now() + KEPT_MS, found };
    found.catch(() => {
      kept = { ...kept, until: 0 };
    });
  }
  return kept.found;
}

// Returns [previous, next] of a step's answer, each { step, reason, attempt } or null.
export function useAnomalies(run, now) {
  const named = useAsk(() => findings(run), [run]).value || [];
  if (!now) return [null, null];
  const places = named
    .filter(({ step }) => step !== null)
    .map(({ step, kind, attempt }) => ({ step, reason: kind.replace("_", " "), attempt }));
  const nearest = (told, wanted) =>
    [told, ...places]
      .filter((place) => place && wanted(place.step))
      .reduce(
        (best, place) => (best && Math.abs(best.step - now.step) <= Math.abs(place.step - now.step) ? best : place),
        null,
      );
  return [
    nearest(now.previous_anomaly, (step) => step < now.step),
    nearest(now.next_anomaly, (step) => step > now.step),
  ];
}
