"""GrpsMessage as protobuf, which is the message of gRPC and the payload of brpc.

The gateway finds the fields in the buffer without upb, protobuf's C library. Lists of FP32 and FP64 in large messages
are therefore not copied, and are separate parts of outgoing messages. Integers are converted in bulk
(`gateway.core.protobuf.integers`).
"""
