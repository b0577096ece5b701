"""Converts a client's tensors to the backend's names, datatypes and shapes, and the backend's tensors back for the
client."""
