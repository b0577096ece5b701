"""Byte streams facing clients."""
