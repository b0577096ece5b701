"""HTTP/1.1 client connections to backends."""
