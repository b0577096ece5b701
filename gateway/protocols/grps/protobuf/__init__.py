"""GrpsMessage as protobuf: the message of gRPC and the payload of brpc.

Fields are found in the buffer without upb, protobuf's C library: lists of FP32 and FP64 in large messages are not
copied, and are separate parts of messages that are written. Integers are converted in bulk
(`gateway.core.protobuf.integers`).
"""
