"""Several hubs on one store: what one hub passes on to the others and shares; a single hub imports none of it."""
