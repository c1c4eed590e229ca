"""The text a Prometheus scraper reads: OpenMetrics, and the older text format."""
