"""Protobuf: messages made from descriptor sets, and the wire format of large tensors."""
