"""Diagnosis in the hub: runs are diagnosed as they are stored, and replayed from the store where that was missed."""
