"""The side of byte streams that faces clients."""
