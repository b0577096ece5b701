"""grps over gRPC: GrpsMessage as request and reply of every method of `grps.protos.v1.GrpsService`.

A Message's `path` and `pattern` are the whole method, `/grps.protos.v1.GrpsService/Predict`. PredictStreaming takes one
request; its replies are any number of messages.
"""
