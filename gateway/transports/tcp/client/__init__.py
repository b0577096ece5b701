"""The side of byte streams that faces backends."""
