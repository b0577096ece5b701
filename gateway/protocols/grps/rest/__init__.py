"""grps over HTTP: a JSON GrpsMessage, or bin_data as a bare body of bytes, under paths of `/grps/v1`.

The reply's HTTP status is the code in its Status, as the Python server has it. The C++ server answers every error with
200; its clients look at the Status in the body.
"""
