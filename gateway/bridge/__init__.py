"""Fitting a client's tensors to what a backend takes, and the backend's to what the client can read."""
