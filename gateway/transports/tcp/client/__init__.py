"""Byte stream connections to backends."""
