// The spellings of a metric's category: the same words as in model/names.py.
export const CATEGORIES = {
  trainer: "trainer",
  train: "trainer",
  actor: "actor",
  act: "actor",
  evaluator: "evaluator",
  eval: "evaluator",
  misc: "misc",
  system: "system",
  stepscope: "stepscope",
};

// A metric's key, or a pattern of keys, with its canonical category: train/loss and trainer/loss are both trainer/loss.
export function canonicalKey(key) {
  const at = key.indexOf("/"),
    prefix = at > 0 ? CATEGORIES[key.slice(0, at).toLowerCase()] : undefined;
  return prefix && at < key.length - 1 ? prefix + key.slice(at) : key;
}
