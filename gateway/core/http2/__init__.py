"""HTTP/2 without sockets and without gRPC.

`server` and `client` are the two sides of a connection, `connection` is their shared part. The other modules are
`frames` (RFC 9113), header blocks (`hpack` and `huffman`, RFC 7541), the rules for heads (`heads`), and limits on the
work that a peer can cause (`bounds`).
"""
