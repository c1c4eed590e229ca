"""Several hubs on one store: records and changes that one hub passes on to the others."""
