"""HTTP/2: frames (RFC 9113) and header blocks (HPACK, RFC 7541). It knows nothing of gRPC."""
