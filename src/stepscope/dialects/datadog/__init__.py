"""Datadog."""
