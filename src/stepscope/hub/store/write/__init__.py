"""Records to rows: numbers for runs and series, columns of each kind, commits, and the ledger."""
