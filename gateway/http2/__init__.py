"""HTTP/2 without sockets, and without gRPC: the two sides of a connection (`server`, `client`) and what they share
(`connection`), frames (RFC 9113), header blocks (`hpack` and `huffman`, RFC 7541), what a head may hold (`heads`), and
how much a peer can make the gateway do (`bounds`)."""
