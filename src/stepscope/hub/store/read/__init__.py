"""What is read from the store by several questions: runs, series, findings, logs, and records as they were."""
