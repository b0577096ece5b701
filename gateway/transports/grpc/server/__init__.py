"""The side of gRPC that faces clients: HTTP/2 (`http2`), the heads of requests (`heads`) and of replies (`replies`),
calls (`calls`), connections (`connection`) and the listener, with gRPC's own services (`health`, `reflection`)."""
