"""The client in threads: from many at once, within a running event loop, and without leaving any behind."""

import asyncio
import gc
import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gateway.client import Client
from tests.cli.commands import started
from tests.client.servers import holding, served
from tests.descriptors import open_descriptors
from tests.interop.processes import eventually
from tests.limits import GENEROUS


def clients() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("client of")]


async def test_within_a_running_loop() -> None:
    """As in a notebook, whose cells run in one."""
    with served("v2-rest", "double") as address, Client(address) as client:
        assert client.infer("double", x=[[1.0]])["y"].tolist() == [[2.0]]
        assert [each["y"].tolist() for each in client.stream("double", x=[[1.0]])] == [[[2.0]]]


def test_many_threads_share_a_client() -> None:
    def doubled(number: int) -> float:
        value: float = client.infer("double", x=np.array([[float(number)]]))["y"].item()
        return value

    with served("v2-grpc", "double") as address, Client(address) as client, ThreadPoolExecutor(8) as threads:
        assert list(threads.map(doubled, range(200))) == [2.0 * number for number in range(200)]


def test_clients_in_several_threads_do_not_mix_their_deadlines() -> None:
    """Each has an event loop of its own, and what is shared by calls of one loop is not shared by two."""

    def work(protocol: str) -> bool:
        with Client(addresses[protocol], timeout=GENEROUS) as client:
            return all(client.infer("double", [[1.0]])["y"].item() == 2.0 for _ in range(100))

    with served("v2-grpc", "double") as grpc, served("v2-rest", "double") as rest:
        addresses = {"v2-grpc": grpc, "v2-rest": rest}
        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(work, [*addresses, *addresses]))


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc", "grps-brpc", "umbridge"])
def test_a_closed_client_leaves_no_thread_and_no_descriptor(protocol: str) -> None:
    options = ("--protocol", protocol, "--bind", "127.0.0.1:0", "--model", "posterior")
    with started("reference", *options) as (_, said):  # in another process, which has descriptors of its own
        address = f"{protocol}://{said[0].partition(' on ')[2].partition(': ')[0].rpartition('://')[2]}"
        with Client(address) as client:  # what the process opens once
            client.infer("posterior", np.array([1.0, 2.0]))
        before = open_descriptors(), len(clients())
        for _ in range(5):
            with Client(address) as client:
                client.infer("posterior", np.array([1.0, 2.0]))
        # Those that other tests of this process have left may be closed meanwhile.
        assert eventually(lambda: (open_descriptors() <= before[0], len(clients())) == (True, before[1]), GENEROUS)


def test_a_client_that_is_forgotten_ends() -> None:
    with served("v2-rest", "double") as address:
        before = clients()
        client = Client(address)
        client.infer("double", [[1.0]])
        (thread,) = {*clients()} - {*before}
        del client
        gc.collect()
        thread.join(GENEROUS)
        assert not thread.is_alive()


def test_a_closed_client_says_so() -> None:
    client = Client("v2-rest://127.0.0.1:1")
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="the client has been closed; create a new one"):
        client.infer("double", [1.0])


def test_closing_ends_calls_in_other_threads() -> None:
    with holding() as (loop, held), ThreadPoolExecutor(1) as threads:
        client = Client(f"v2-rest://127.0.0.1:{held.port}")
        call = threads.submit(client.infer, "m", np.array([1], np.int32))
        asyncio.run_coroutine_threadsafe(held.arrived.wait(), loop).result()
        client.close()
        assert call.exception(GENEROUS) is not None


def test_a_stream_that_is_dropped_after_its_client() -> None:
    with served("v2-grpc", "count") as address:
        client = Client(address)
        responses = client.stream("count", n=[1000])
        next(responses)
        client.close()
        with pytest.raises(RuntimeError, match="the client has been closed; create a new one"):
            next(responses)


def _in_a_child(address: str, client: Client) -> None:
    with pytest.raises(RuntimeError, match="from another process"):
        client.infer("double", [[1.0]])
    with Client(address) as own:
        assert own.infer("double", [[1.0]])["y"].item() == 2.0
    os._exit(7)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_client_does_not_cross_a_fork() -> None:
    with served("v2-rest", "double") as address, Client(address) as client:
        child = multiprocessing.get_context("fork").Process(target=_in_a_child, args=(address, client))
        child.start()
        child.join(GENEROUS)
        assert child.exitcode == 7
        assert client.infer("double", [[1.0]])["y"].item() == 2.0
