import os

# grpcio's core, which the tests use for real clients and servers, writes to standard error in a form of its own; it
# reads this when it is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
