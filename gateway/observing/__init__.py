"""Observers of request Records: the access log, metrics, traces, the payload log, and the console's history."""
