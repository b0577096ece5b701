"""The number of workers, and the addresses that they share."""

import os
import socket
from pathlib import Path

import pytest

from gateway.assembly.listening import BindError
from gateway.config import Config
from gateway.runtime.workers import worker_config
from gateway.runtime.workers.reserved_addresses import Addresses
from tests.interop.processes import free_port
from tests.running_gateway import config_of

CONFIG = """
workers: auto
listeners: [{name: http, bind: "127.0.0.1:PORT", protocols: [v2-rest]}]
reference: [{protocol: umbridge, bind: "127.0.0.1:0", models: [double]}]
backends: {lab: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:1"]}}
routes: [{match: {model: m}, backend: lab}]
"""


def config(port: int = 0) -> Config:
    return config_of(CONFIG.replace("PORT", str(port)))


@pytest.mark.parametrize(
    ("quota", "number"),
    [("250000 100000", 3), ("50000 100000", 1), ("max 100000", 6), ("1000000 100000", 6), (None, 6)],
)
def test_auto_is_a_worker_for_each_core_that_the_container_may_use(
    quota: str | None, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpu.max"
    if quota is not None:
        file.write_text(quota)
    monkeypatch.setattr(worker_config, "CPU_MAX", file)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)))
    assert worker_config.number_of_workers(config()) == number
    assert worker_config.number_of_workers(config().model_copy(update={"workers": 2})) == 2


def is_free(port: int) -> bool:
    with socket.socket() as made:
        try:
            made.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def test_an_address_stays_reserved_as_long_as_a_configuration_has_it() -> None:
    addresses = Addresses()
    first = addresses.shared(config(port := free_port()))
    reference = first.reference[0].bind.port
    assert reference
    assert addresses.shared(config(port)) == first  # the port of the sample server stays
    with pytest.raises(BindError, match=f"listener 'http': cannot bind 127.0.0.1:{port}: .*in use"):
        Addresses().shared(config(port))
    second = addresses.shared(config(other := free_port()))
    ports = port, reference, other
    assert [is_free(each) for each in ports] == [False] * 3
    addresses.release_unused(second)
    assert [is_free(each) for each in ports] == [True, False, False]
    addresses.release()
    assert [is_free(each) for each in ports] == [True] * 3
