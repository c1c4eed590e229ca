"""Datadog's dialects: records as points, events, checks and logs; DogStatsD lines; bodies for the HTTP intake."""
