"""Keys, headers and certificates, through a gateway that asks for them."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import numpy as np
import pytest

from gateway.auth.keys import new_key, write_keys
from gateway.client import Client, ConnectError, Refused, Tls
from gateway.runtime.app import Gateway
from tests.client.servers import elsewhere
from tests.running_gateway import reference, running_gateway
from tests.tls.certificates import Authority, Files

CONFIG = """
auth: {keys: {file: FILE}}
permissions:
  doubling: [{operations: [infer, metadata], models: ["double"]}]
principals:
  alice: {permissions: [doubling]}
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge, v1-rest], auth: {}TLS}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc, grps-grpc], model: double, auth: {}TLS}
  - {name: brpc, bind: "tcp://127.0.0.1:0", protocols: [grps-brpc], model: double, auth: {}TLS}
backends:
  lab: {protocol: v2-rest, endpoints: ["PLACE"], flavor: plain}
routes: [{match: {}, backend: lab}]
"""
LISTENERS = {
    "v2-rest": "http",
    "umbridge": "http",
    "v1-rest": "http",
    "v2-grpc": "grpc",
    "grps-grpc": "grpc",
    "grps-brpc": "brpc",
}
KEY, ENTRY = new_key("alice")


@contextmanager
def guarded(folder: Path, tls: str = "") -> Iterator[Callable[[str], str]]:
    """A gateway that knows one key, in front of a reference server: what makes the address for a wire form."""
    (folder / "keys.yaml").write_text(write_keys([ENTRY]))

    @asynccontextmanager
    async def context() -> AsyncIterator[Gateway]:
        async with reference("v2-rest", "double", "posterior") as place:
            text = CONFIG.replace("FILE", str(folder / "keys.yaml")).replace("PLACE", place)
            async with running_gateway(text.replace("TLS", f", tls: {tls}" if tls else "")) as gateway:
                yield gateway

    with elsewhere(context) as (_, gateway):

        def address(protocol: str) -> str:
            port = gateway.state.listeners[LISTENERS[protocol]].address.rpartition(":")[2]
            return f"{protocol}{'+tls' if tls else ''}://localhost:{port}"

        yield address


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    with guarded(tmp_path_factory.mktemp("guarded")) as address:
        yield address


POINT = np.array([[1.0, 2.0]])


@pytest.mark.parametrize("protocol", [each for each in LISTENERS if each != "umbridge"])
def test_a_key_goes_with_every_request(protocol: str, address: Callable[[str], str]) -> None:
    """Also with those for metadata, that precede an inference."""
    with Client(address(protocol), key=KEY) as client:
        assert client.infer("double", x=POINT)["y"].tolist() == [[2.0, 4.0]]
        with pytest.raises(Refused, match="posterior"):
            client.infer("posterior", [[1.0, 2.0]])


@pytest.mark.parametrize("protocol", LISTENERS)
def test_without_a_key_and_with_a_wrong_one(protocol: str, address: Callable[[str], str]) -> None:
    wrong = new_key("alice")[0]
    for key in (None, wrong):
        with Client(address(protocol), key=key) as client, pytest.raises(Refused) as caught:
            client.infer("double", [[1.0, 2.0, 3.0]])
        assert wrong not in str(caught.value)
        assert caught.value.status.name == "UNAUTHENTICATED"


@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc"])
def test_the_header_may_be_given_instead(protocol: str, address: Callable[[str], str]) -> None:
    with Client(address(protocol), headers={"Authorization": f"Bearer {KEY}"}) as client:
        assert client.infer("double", x=POINT)["y"].tolist() == [[2.0, 4.0]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Authority().issue(tmp_path_factory.mktemp("tls"), "localhost", "127.0.0.1")


@pytest.fixture(scope="module")
def secured(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    with guarded(tmp_path_factory.mktemp("secured"), files.asking("optional")) as address:
        yield address


@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc", "grps-brpc"])
def test_tls_on_every_transport(protocol: str, secured: Callable[[str], str], files: Files) -> None:
    with Client(secured(protocol), key=KEY, tls=Tls(ca=str(files.ca))) as client:
        assert client.infer("double", x=POINT)["y"].tolist() == [[2.0, 4.0]]
    with Client(secured(protocol), key=KEY, tls=Tls(verify=False)) as client:
        assert client.infer("double", x=POINT)["y"].tolist() == [[2.0, 4.0]]
    with Client(secured(protocol), key=KEY) as client, pytest.raises(ConnectError, match="signed by an unknown CA"):
        client.infer("double", x=POINT)


def test_a_client_certificate_is_shown(secured: Callable[[str], str], files: Files, tmp_path: Path) -> None:
    stranger = Authority().issue(tmp_path, "stranger")
    for shown, is_known in ((stranger, False), (files, True)):
        tls = Tls(str(files.ca), str(shown.certificate), str(shown.key))
        with Client(secured("v2-rest"), key=KEY, tls=tls) as client:
            if is_known:
                assert client.infer("double", x=POINT)["y"].tolist() == [[2.0, 4.0]]
            else:
                with pytest.raises(ConnectError):
                    client.infer("double", x=POINT)
