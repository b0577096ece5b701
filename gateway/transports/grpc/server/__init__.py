"""The gRPC server, which uses `gateway.core.http2`: the listener, its connections (`connection`), calls (`calls`),
request heads (`heads`), reply header blocks (`replies`), and gRPC's own services (`own_services`)."""
