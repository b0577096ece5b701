"""grps over HTTP. The body is a JSON GrpsMessage, or bin_data as bytes, under paths of `/grps/v1`.

The HTTP status of a response is the code in its Status, as in the Python server. The C++ server sends every error with
status 200, and its clients read the Status in the body.
"""
