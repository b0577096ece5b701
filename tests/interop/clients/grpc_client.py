"""Drive gRPC's own clients of reflection and health, in the peer's own environment.

Takes `address` and gives what a client that knows nothing of the server's schemas finds out:

    {"services": [names], "health": {name: status},
     "methods": {name: [names]}, "fields": {message: [names]}, "metadata": [name, version]}

The reflection client speaks v1alpha. `fields` are those of the messages that the methods take and give; `metadata` is
the answer to V2's ServerMetadata, whose messages were built from what the server told.
"""

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

V2 = "inference.GRPCInferenceService"


def health(channel, services):
    stub = health_pb2_grpc.HealthStub(channel)
    statuses = {}
    for service in ("", *services, "no.Such"):
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service))
            statuses[service] = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
        except grpc.RpcError as error:
            statuses[service] = error.code().name
    return statuses


def ask(channel, method):
    question, answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    path = f"/{method.containing_service.full_name}/{method.name}"
    return channel.unary_unary(path, question.SerializeToString, answer.FromString)(question())


def main(address):
    with grpc.insecure_channel(address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        pool = DescriptorPool(database)
        services = sorted(database.get_services())
        found = {name: pool.FindServiceByName(name) for name in services}
        messages = [
            kind
            for service in found.values()
            for method in service.methods
            for kind in (method.input_type, method.output_type)
        ]
        told = ask(channel, found[V2].methods_by_name["ServerMetadata"])
        return {
            "services": services,
            "health": health(channel, services),
            "methods": {name: sorted(service.methods_by_name) for name, service in found.items()},
            "fields": {kind.full_name: sorted(kind.fields_by_name) for kind in messages},
            "metadata": [told.name, told.version],
        }
