"""Dashboards: charts of any run, written in YAML; some are built in, the others lie in the home folder."""
