"""The words every other folder speaks: records, writers, names, refusals."""
