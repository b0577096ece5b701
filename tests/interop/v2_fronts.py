"""A gateway in front of the real servers: for each of them a listener of V2 over gRPC, and one over REST for Triton."""

from __future__ import annotations

SERVERS = ("triton", "by_rest", "mlserver", "kserve", "umbridge")
"""The listeners of gRPC. The Triton of `by_rest` is called over REST, and the servers of V2 else over gRPC."""
V2 = SERVERS[:-1]

CONFIG = """
listeners:
  - {{name: umbridge, bind: "127.0.0.1:{umbridge}", protocols: [v2-grpc], limits: {{message: {message}}}}}
  - {{name: triton, bind: "127.0.0.1:{triton}", protocols: [v2-grpc], limits: {{message: {message}}}}}
  - {{name: mlserver, bind: "127.0.0.1:{mlserver}", protocols: [v2-grpc], limits: {{message: {message}}}}}
  - {{name: kserve, bind: "127.0.0.1:{kserve}", protocols: [v2-grpc], limits: {{message: {message}}}}}
  - {{name: by_rest, bind: "127.0.0.1:{by_rest}", protocols: [v2-grpc], limits: {{message: {message}}}}}
  - {{name: rest, bind: "127.0.0.1:{rest}", protocols: [v2-rest], limits: {{message: {message}}}}}
backends:
  umbridge: {{protocol: umbridge, endpoints: ["{at_umbridge}"]}}
  triton: {{protocol: v2-grpc, endpoints: ["{at_triton.grpc}"], limits: {{message: {message}}}}}
  mlserver: {{protocol: v2-grpc, endpoints: ["{at_mlserver.grpc}"], limits: {{message: {message}}}}}
  kserve: {{protocol: v2-grpc, endpoints: ["{at_kserve.grpc}"]}}
  by_rest: {{protocol: v2-rest, endpoints: ["{at_triton.http}"], limits: {{message: {message}}}}}
routes:
{routes}
  - {{match: {{listener: umbridge}}, backend: umbridge}}
  - {{match: {{listener: mlserver}}, backend: mlserver}}
  - {{match: {{listener: kserve}}, backend: kserve}}
  - {{match: {{listener: by_rest}}, backend: by_rest}}
  - {{match: {{model: "*"}}, backend: triton}}
"""
