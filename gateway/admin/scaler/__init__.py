"""The external scaler for KEDA: the service (`service`), the settings of triggers (`trigger`), and the gRPC port
(`server`)."""
