"""The transports: HTTP, gRPC, and byte streams (TCP and unix sockets). In each folder, `server` contains the Listener
and `client` the Connector. The modules next to the folders contain shared code, and the SharedListener for an address
with several transports.
"""
