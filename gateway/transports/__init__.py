"""The transports: HTTP, gRPC, and byte streams (TCP and unix sockets). Of each, `server` has the Listener and `client`
the Connector. What all of them use is in no folder, and so is the SharedListener of an address with several transports.
"""
