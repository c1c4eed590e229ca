"""Delivery to sinks: requested by trainers, done by the shipper process or by threads of the trainer."""
