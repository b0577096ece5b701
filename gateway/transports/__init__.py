"""The transports: HTTP, gRPC, and byte streams (TCP and unix sockets). In each folder, `server` has the Listener and
`client` the Connector. Shared code, and the SharedListener for an address with several transports, are in the modules
next to the folders."""
