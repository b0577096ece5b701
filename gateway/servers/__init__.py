"""Model servers that the gateway starts, scales and stops, on an engine such as a batch system."""
