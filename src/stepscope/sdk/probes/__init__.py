"""Probes of the machine and the process, and the thread that reads them."""
