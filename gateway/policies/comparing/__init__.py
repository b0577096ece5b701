"""Compares the responses of two servers to the same request, within tolerances. `mirror` and `gateway replay` use
it."""
