"""The side of gRPC that faces backends, on `gateway.core.http2`: the connector, an endpoint's connections (`pool`), one
connection (`connection`), one call (`call`), heads of requests and of responses, and what failed (`failures`)."""
