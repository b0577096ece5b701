"""The side of gRPC that faces backends."""
