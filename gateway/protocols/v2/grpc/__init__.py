"""V2 over gRPC, through the service `inference.GRPCInferenceService`.

The `path` and the `pattern` of a Message are the full method name, `/inference.GRPCInferenceService/ModelInfer`. The
parts of a Message are one protobuf message. `status` is the status code of a response; if it is not 0, the body is the
status message and the headers are the trailing metadata.
"""
