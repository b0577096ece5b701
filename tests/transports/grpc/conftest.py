import gateway.transports.grpc  # noqa: F401  # first: it silences gRPC's core, which is told so when it is imported
