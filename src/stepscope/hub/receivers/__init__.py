"""Where records come in: the interfaces of receivers and listeners, and the native protocol."""
