"""GrpsMessage as protobuf, the message of gRPC and the payload of brpc.

There are two readers with the same results:

| reader           | messages                                    | lists of numbers                                |
|------------------|---------------------------------------------|-------------------------------------------------|
| `small_messages` | up to 64 KiB, with gtensors or without data | copied by upb, protobuf's own C library         |
| `message`        | all others, and what upb refuses            | FP32 and FP64 stay where they are in the buffer |

The writer places the tensors' own buffers between small parts, without joining them.
"""
