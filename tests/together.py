"""The files of tests/interop that one process runs, since their tests use the same real servers: Triton, MLServer and
KServe. To start them takes 12 s of CPU, in each process that does."""

WITH_TRITON = (
    "test_binary_wire_forms",
    "test_cancel",
    "test_client",
    "test_derivatives",
    "test_gather",
    "test_gather_mlserver",
    "test_graphs",
    "test_generate",
    "test_graphpipe",
    "test_mip",
    "test_mirror",
    "test_peers",
    "test_peers_v2",
    "test_probe",
    "test_pymc",
    "test_shield",
    "test_streaming",
    "test_umbridge_to_triton",
    "test_v1",
    "test_v2_extensions",
    "test_v2_flavours",
    "test_v2_grpc",
    "test_v2_grpc_datatypes",
    "test_v2_to_triton",
)
