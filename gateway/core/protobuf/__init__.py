"""Protobuf without generated modules; tensor data stays in the received buffer.

Ways to handle a message, each where it is fastest (upb is the C library inside the `protobuf` package):

- `schema`: classes made at import from descriptor sets. upb reads and writes what is rare: parameters, metadata.
- `wire`: the wire format by hand, for messages with tensors. upb would copy their data twice: 100,000 doubles take 7 us
  this way and 30 us through upb. `cut` takes single fields out of a message as views.
- `fields`: single fields of text and bytes, and the limit on all that one message holds.
- `integers`: packed varints. upb reads them in blocks and writes short lists; numpy writes long ones, for which upb
  would need a Python object for each number. 100,000 int32 take 1,200 us in bounded memory, upb in one call 877.

Refused: groups (no version 3 schema has them), varints of more than 10 bytes, fields that reach past the message,
numbers out of their tensor's datatype, and more bytes or fields outside tensor data than `wire.Allowance` has: upb
makes up to 40 bytes of one.

A length-delimited field and the places that `wire.Field` gives of it; the key is the varint of its tag,
`number << 3 | wire type`:

    | key: varint | length: varint | bytes ...   |
    ^ start                        ^ value       ^ end

docs/dependencies.md says how the figures were measured.
"""
