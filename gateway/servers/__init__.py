"""Model servers that the gateway starts, counts and ends itself, on an engine such as a batch system."""
