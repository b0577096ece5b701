"""grps over Apache brpc's baidu_std: GrpsMessage in frames on a TCP connection that many calls share.

    "PRPC" | body_size u32 | meta_size u32 | RpcMeta | payload | attachment
    '---------- header, 12 bytes ---------' '------- body_size bytes -------'

The sizes are big-endian; RpcMeta has meta_size bytes, the attachment as many as RpcMeta says.

The protocol is described in `docs/en/baidu_std.md` of https://github.com/apache/brpc; RpcMeta is in
`protos/grps/baidu_std.proto`.

A Message has two parts, the header and the rest. The `origin` of a Request keeps only the correlation id, as the bytes
of its field in the meta.

An error is in one of two places. If the client's GrpsMessage could be read, the error is in the GrpsMessage of a reply
that succeeds, as on the other wires. Otherwise it is in the meta of a reply without payload, as a number of brpc.
"""
