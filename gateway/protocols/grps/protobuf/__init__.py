"""Converts a GrpsMessage to and from protobuf, which is the message of gRPC calls, and the payload of brpc frames.

The gateway finds the fields in the buffer without upb, protobuf's C library. It therefore does not copy FP32 and FP64
lists of large messages, and sends them as separate parts. Integers are converted in bulk
(`gateway.core.protobuf.integers`).
"""
