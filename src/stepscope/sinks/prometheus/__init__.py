"""Prometheus: the latest values, shown for a scraper."""
