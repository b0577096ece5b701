"""Compares the answers of two servers to one request, within tolerances."""
