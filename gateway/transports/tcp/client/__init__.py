"""Byte streams facing backends."""
