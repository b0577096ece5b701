"""The process of a gateway: its startup, event loop, log, standard streams and exit."""
