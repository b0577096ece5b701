"""A server that is stopping says so: what it has not begun goes to another endpoint of its backend."""

import asyncio
from contextlib import suppress

from tests.core.http2 import by_hand as http2
from tests.core.http2.by_hand import Peer, serving
from tests.limits import GENEROUS
from tests.peers import brpc_peer
from tests.peers.grps_messages import SUCCESS, tensor
from tests.peers.protobuf import Document
from tests.test_hung_servers import infer, running, states

ELOGOFF = (2003, "Server is stopping")


def predict(message: Document) -> Document:
    return {"status": SUCCESS, "gtensors": {"tensors": [tensor("logdensity", "DT_FLOAT64", [1, 1], [1.0])]}}


async def test_brpc_servers_that_log_off_cost_no_call_and_get_a_new_connection() -> None:
    with brpc_peer.serve({"Predict": predict}) as stopping, brpc_peer.serve({"Predict": predict}) as other:
        addresses = {"grps-brpc": [f"127.0.0.1:{each.server_address[1]}" for each in (stopping, other)]}
        async with asyncio.timeout(GENEROUS), running(addresses, GENEROUS) as gateway:
            assert [await infer(gateway, "grps-brpc") for _ in range(4)] == [200] * 4
            stopping.change(error=ELOGOFF)
            assert await asyncio.gather(*(infer(gateway, "grps-brpc") for _ in range(20))) == [200] * 20
            assert states(gateway, "grps-brpc") == ["down", "up"]
            stopping.change(error=None)
            while states(gateway, "grps-brpc") != ["up", "up"]:  # it is tried again after a second
                assert await infer(gateway, "grps-brpc") == 200
                await asyncio.sleep(0.05)


async def test_a_lone_brpc_server_that_logs_off_is_told() -> None:
    with brpc_peer.serve({"Predict": predict}, error=ELOGOFF) as stopping:
        addresses = {"grps-brpc": [f"127.0.0.1:{stopping.server_address[1]}"]}
        async with asyncio.timeout(GENEROUS), running(addresses, GENEROUS) as gateway:
            assert await infer(gateway, "grps-brpc") == 503
            stopping.change(error=None)
            assert await infer(gateway, "grps-brpc") == 200


async def test_calls_above_the_last_stream_of_a_grpc_server_go_elsewhere() -> None:
    asked: list[str] = []

    async def leaves(peer: Peer) -> None:
        await peer.opening()
        await peer.request()
        asked.append("the one that leaves")
        peer.send(http2.go_away(0))
        await peer.closed()

    async def answers(peer: Peer) -> None:
        await peer.opening()
        with suppress(asyncio.IncompleteReadError):
            while True:
                stream = await peer.request()
                asked.append("the other")
                ended = ((b"grpc-status", b"5"), (b"grpc-message", b"no such model"))
                peer.send(http2.head(http2.OK, http2.CONTENT_TYPE, *ended, end=True, stream=stream))

    async with (
        asyncio.timeout(GENEROUS),
        serving(leaves) as first,
        serving(answers) as second,
        running({"v2-grpc": [first, second]}, GENEROUS) as gateway,
    ):
        assert [await infer(gateway, "v2-grpc") for _ in range(2)] == [404] * 2
    assert asked[:2] == ["the one that leaves", "the other"]
