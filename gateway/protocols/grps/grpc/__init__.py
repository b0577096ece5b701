"""grps over gRPC. Every method of `grps.protos.v1.GrpsService` takes and returns a GrpsMessage.

The `path` and the `pattern` of a Message are the full method name, such as `/grps.protos.v1.GrpsService/Predict`.
PredictStreaming takes one request, and returns any number of messages.
"""
