"""The server behind the proxies gives back what it was sent, to a real gRPC client."""

import asyncio
import random

import grpc.aio
import pytest

from gateway.protocols.v2.grpc import schema
from tests.benchmarks.contest.conftest import Serve
from tests.benchmarks.contest.echo import Grpc, Rest, answer


def request(raw: bytes) -> object:
    message = schema.ModelInferRequest(model_name="vector_10", id="7")
    message.inputs.add(name="input0", datatype="UINT8", shape=[1, len(raw)])
    message.outputs.add(name="output0")
    message.raw_input_contents.append(raw)
    return message


@pytest.mark.parametrize("size", [0, 10, 127, 128, 70_000, 2**21])
async def test_grpc(size: int, serve: Serve) -> None:
    """The larger ones are more than the windows and the frames of HTTP/2 let through at once."""
    raw = random.Random(size).randbytes(size)
    async with grpc.aio.insecure_channel(await serve(Grpc)) as channel:
        call = channel.unary_unary(
            schema.MODEL_INFER, lambda message: message.SerializeToString(), schema.ModelInferResponse.FromString
        )
        reply = await call(request(raw), timeout=20)
        assert (reply.model_name, reply.id, list(reply.outputs[0].shape)) == ("vector_10", "7", [1, size])
        assert list(reply.raw_output_contents) == [raw]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/other.Service/Call")(b"", timeout=20)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_rest() -> None:
    head = b"POST /v2/models/vector_2/infer HTTP/1.1\r\nHost: a"
    body = b'{"inputs":[{"name":"input0","datatype":"FP32","shape":[1,2],"data":[0.25,1.5]}]}'
    assert answer(head, body).endswith(
        b'{"model_name":"vector_2","outputs":[{"name":"output0","datatype":"FP32","shape":[1,2],"data":[0.25,1.5]}]}'
    )


async def test_a_request_that_arrives_in_pieces(serve: Serve) -> None:
    host, port = (await serve(Rest)).split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = b'{"inputs":[{"data":[0.25,1.5]}]}'
    whole = b"POST /v2/models/vector_2/infer HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    for at in range(0, len(whole), 7):
        writer.write(whole[at : at + 7])
        await writer.drain()
        await asyncio.sleep(0)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split()[0])
    assert b'"data":[0.25,1.5]' in await reader.readexactly(length)
    writer.close()


def test_rest_of_traffic() -> None:
    head = b"POST /v2/models/traffic_3/infer HTTP/1.1\r\nHost: a"
    body = b'{"id": "7", "inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [0.25]}]}'
    assert answer(head, body).endswith(
        b'\r\n\r\n{"model_name": "traffic_3", "id": "7", "outputs": '
        b'[{"name": "x", "shape": [1], "datatype": "FP32", "data": [0.25]}]}'
    )
