"""The gateway against other programs that do the same work: nginx, Envoy, MLServer, kserve, and adapters."""
