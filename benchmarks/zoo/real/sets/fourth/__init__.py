"""The fourth set: the mistakes that people ask about in forums."""
