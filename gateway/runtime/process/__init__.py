"""The process that a gateway runs in: its first steps, its event loop, its log and standard streams, and its end."""
