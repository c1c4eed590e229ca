"""Every decoder against bytes that nobody planned: `python -m tests.fuzz NAME -max_total_time=600`."""
