"""Integrations of frameworks, one module each, imported only on use."""
