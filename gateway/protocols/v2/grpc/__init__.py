"""V2 over gRPC: the service `inference.GRPCInferenceService`.

A Message's `path` and `pattern` are the full method name, `/inference.GRPCInferenceService/ModelInfer`. Its parts are
one protobuf message. `status` is the status code of a response; if it is not 0, the body is the status message and the
headers are the trailing metadata.
"""
