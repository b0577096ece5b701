"""How long tests wait for what should come at once."""

GENEROUS = 300.0
"""Seconds: ten times what the slowest of such waits takes on a busy machine of two cores. It only ends tests that hang,
with the place where they do, before pytest's own limit."""
