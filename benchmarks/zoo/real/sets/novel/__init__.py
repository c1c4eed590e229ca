"""A set of models that the others lack: a vision transformer, speech, a student, adapters, flows."""
