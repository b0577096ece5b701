"""The side of HTTP/1.1 that faces clients."""
