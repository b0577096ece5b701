"""Protobuf without generated modules. Tensor data stays in the received buffer.

Each module handles the messages that it handles fastest (upb is the C library inside the `protobuf` package):

- `schema`: Classes that are made at import from descriptor sets. With them, upb reads and writes rare parts of
  messages, such as parameters and metadata.
- `wire`: The wire format in Python, for messages with tensors, whose data upb would copy twice: 100,000 doubles take 7
  us with this module and 30 us with upb. `cut` returns single fields of a message as views.
- `tensor_fields`: The fields of a message that holds one tensor, such as TensorProto.
- `fields`: Single fields of text and bytes, and the limit on the total content of a message.
- `integers`: Packed varints. upb reads them in blocks, and writes short lists. numpy writes long lists, because upb
  would need a Python object for each number. 100,000 int32 take 1,200 us and a limited amount of memory; a single upb
  call takes 877 us.

The package refuses groups (proto3 schemas have none), varints of more than 10 bytes, fields that extend beyond the end
of the message, and numbers outside the range of their tensor's datatype. It also refuses messages with more bytes or
fields outside tensor data than `wire.Allowance` permits, because upb allocates up to 40 bytes for one byte.

The following figure shows a length-delimited field and its positions in `wire.Field`. The key is the tag (`number << 3
| wire type`) as a varint:

    | key: varint | length: varint | bytes ...   |
    ^ start                        ^ value       ^ end

See docs/dependencies.md for the measurements.
"""
