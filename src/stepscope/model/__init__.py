"""The data model: records, writers, names, errors, and the ports between stages."""
