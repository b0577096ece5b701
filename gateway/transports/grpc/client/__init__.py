"""The gRPC client, which uses `gateway.core.http2`: the connector, an endpoint's connections (`pool`), one connection
(`connection`), one call (`call`), request and response heads (`heads`), and errors (`failures`)."""
