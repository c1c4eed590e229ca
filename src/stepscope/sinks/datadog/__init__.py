"""Datadog: through an Agent as DogStatsD, or without one to the HTTP intake."""
