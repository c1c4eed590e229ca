"""The measurements, one file each: `measure` runs in the parent, `child` in a fresh interpreter."""
