"""The client side of gRPC, on `gateway.core.http2`: the listener, its connections (`connection`), calls (`calls`),
heads of requests (`heads`), header blocks of replies (`replies`), and gRPC's own services (`health`, `reflection`)."""
