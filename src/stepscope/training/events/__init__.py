"""The events of a client SDK: what it logs, the exceptions on their way out, and whose fault they are."""
