"""HTTP/1.1 facing clients."""
