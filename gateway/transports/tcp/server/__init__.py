"""Byte stream connections to clients."""
