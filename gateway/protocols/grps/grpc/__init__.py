"""grps over gRPC. GrpsMessage is the request and the response of every method of `grps.protos.v1.GrpsService`.

The `path` and the `pattern` of a Message are the full method name, `/grps.protos.v1.GrpsService/Predict`.
PredictStreaming takes one request, and responds with any number of messages.
"""
