"""Comparison of the responses of two servers to the same request, within tolerances."""
