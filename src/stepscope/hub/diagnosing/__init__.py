"""Diagnosis in the hub: runs are diagnosed as they are stored, or replayed from the store."""
