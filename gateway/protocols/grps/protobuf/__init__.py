"""GrpsMessage as protobuf, the message of gRPC and the payload of brpc.

Fields are found in the buffer without upb, protobuf's own C library: lists of FP32 and FP64 stay where they are in
large messages, and are parts of their own in messages that are written. Integers are converted in bulk
(`gateway.core.protobuf.integers`).
"""
