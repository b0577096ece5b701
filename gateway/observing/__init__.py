"""Observers of the records of requests: log, metrics, traces."""
