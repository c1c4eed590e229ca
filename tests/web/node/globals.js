// The few names of a browser that modules read while they are loaded; no test depends on what they answer.
Object.assign(globalThis, {
  addEventListener: () => {},
  document: { documentElement: { dataset: {} } },
  localStorage: { getItem: () => null },
  location: { hash: "" },
  matchMedia: () => ({ matches: false, addEventListener: () => {} }),
});
