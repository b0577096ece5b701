"""Protobuf support without generated modules. Tensor data stays in the received buffer.

Each module handles the content for which it is fastest (upb is the C library in the `protobuf` package):

- `schema`: Classes that are created at import from descriptor sets. With these classes, upb reads and writes rare parts
  of messages, such as parameters and metadata.
- `wire`: The wire format in Python, for messages with tensors. upb would copy the tensors' data twice: 100,000 doubles
  take 30 us with upb, and 7 us with this module. `cut` returns single fields of a message as views.
- `fields`: Single fields with text or bytes, the limit on the total content of a message, and the fields of a message
  with one tensor, such as TensorProto.
- `integers`: Packed varints. upb reads varints in blocks, and writes short lists. numpy writes long lists, because upb
  would need a Python object for each number. 100,000 int32 numbers take 1,200 us and a limited amount of memory, while
  a single upb call takes 877 us.

The package rejects groups (proto3 schemas have none), varints of more than 10 bytes, fields that extend beyond the end
of the message, and numbers outside the range of their tensor's datatype. Because upb allocates up to 40 bytes for one
byte, the package also rejects messages with more bytes or fields outside tensor data than `wire.Allowance` permits.

The following figure shows a length-delimited field and its positions in `wire.Field`. The key is the tag (`number << 3
| wire type`) as a varint:

    | key: varint | length: varint | bytes ...   |
    ^ start                        ^ value       ^ end

For the measurements, see docs/dependencies.md.
"""
