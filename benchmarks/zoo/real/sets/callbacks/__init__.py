"""Trainings by frameworks, recorded by our callbacks."""
