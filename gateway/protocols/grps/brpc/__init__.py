"""grps over Apache brpc's baidu_std: GrpsMessage in frames on a TCP connection that many calls share.

    "PRPC" | body_size u32 | meta_size u32 | RpcMeta | payload | attachment
    '---------- header, 12 bytes ---------' '------- body_size bytes -------'

The sizes are big-endian. RpcMeta takes meta_size bytes, and states the size of the attachment.

`docs/en/baidu_std.md` of https://github.com/apache/brpc describes the protocol; RpcMeta is in
`protos/grps/baidu_std.proto`.

A Message consists of two parts: the header and the rest. The `origin` of a Request keeps only the correlation id, as
the bytes of its field in the meta.

An error is reported in one of two forms. If the gateway could read the client's GrpsMessage, the GrpsMessage of a
successful response contains the error, as over the other transports. Otherwise, the meta of a response without payload
contains a brpc error number.
"""
