"""HTTP/2 without sockets, and without gRPC.

`server` and `client` are the two sides of a connection, `connection` is what they share; `frames` (RFC 9113), header
blocks (`hpack` and `huffman`, RFC 7541), what a head may hold (`heads`), and how much a peer can make the gateway do
(`bounds`).
"""
