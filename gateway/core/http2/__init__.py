"""HTTP/2, independent of sockets and of gRPC.

`server` and `client` implement the two sides of a connection, and `connection` implements their common part. The other
modules implement frames (`frames`, RFC 9113), header blocks (`hpack`, RFC 7541), the rules for heads (`heads`), and
limits on the work that a peer can cause (`bounds`).
"""
