"""datadog."""
