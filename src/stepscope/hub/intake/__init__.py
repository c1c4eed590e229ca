"""From an accepted record to the store: limits and masking, the journal of the hub, the pump, and counters."""
