"""KEDA's external scaler: the service (`service`), what triggers ask of it (`trigger`), and its port (`server`)."""
