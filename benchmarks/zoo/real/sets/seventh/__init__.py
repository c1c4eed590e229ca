"""The seventh set: the mistakes that people make most often, most of them at a known step."""
