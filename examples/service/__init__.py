"""A small training service: FastAPI in front, futures in Redis, a model in a Ray actor, all in one trace."""
