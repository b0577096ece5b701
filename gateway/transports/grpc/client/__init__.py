"""The upstream side of gRPC, on `gateway.core.http2`: the connector, an endpoint's connections (`pool`), one connection
(`connection`), one call (`call`), heads of requests and of responses, and errors (`failures`)."""
