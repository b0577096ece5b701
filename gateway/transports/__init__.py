"""The transports: HTTP, gRPC, and byte streams (TCP and unix sockets). Each folder contains a Listener and a Connector.
The modules next to the folders contain shared code, and the SharedListener for an address with several transports.
"""
