"""Protobuf without generated modules. Tensor data stays in the received buffer.

Each module handles the messages for which it is fastest (upb is the C library inside the `protobuf` package):

- `schema`: Classes made at import from descriptor sets. upb reads and writes rare parts, such as parameters and
  metadata.
- `wire`: The wire format in Python, for messages with tensors. upb would copy their data twice: 100,000 doubles take 7
  us with this module and 30 us with upb. `cut` takes single fields out of a message as views.
- `tensor_fields`: The fields of a message that holds one tensor, such as TensorProto.
- `fields`: Single fields of text and bytes, and the limit on the total content of one message.
- `integers`: Packed varints. upb reads them in blocks and writes short lists. numpy writes long lists, because upb
  would need a Python object for each number. For 100,000 int32, this takes 1,200 us in bounded memory; a single upb
  call takes 877 us.

The package refuses groups (no version 3 schema has them), varints of more than 10 bytes, fields that reach past the
message, and numbers outside the range of their tensor's datatype. It also refuses messages with more bytes or fields
outside tensor data than `wire.Allowance` has, because upb allocates up to 40 bytes for one byte.

A length-delimited field and its positions in `wire.Field`; the key is the varint of its tag, `number << 3 | wire type`:

    | key: varint | length: varint | bytes ...   |
    ^ start                        ^ value       ^ end

See docs/dependencies.md for the measurements.
"""
