"""The test servers for containers say what the real servers said to the same requests."""

from __future__ import annotations

import json

import pytest

from tests.peers.json_containers import BUSY, CONTAINERS, serve
from tests.peers.recordings import RECORDED, Reply, asked, recorded

SERVERS = {
    "torchserve": "torchserve",
    "sagemaker": "sagemaker",
    "vertex": "vertex",
    "seldon": "seldon",
    "ray": "ray_applications",
    "cog-0.9": "cog_0_9",
    "cog-0.16": "cog_0_16",
    "cog-0.23": "cog",
    "infinity": "infinity",
}
"""For each file of `recorded` the container that says the same."""


EVERY = [(name, command, reply) for name in SERVERS for command, reply in recorded(name).items()]


def test_each_file_has_a_container() -> None:
    assert {each.stem for each in RECORDED.iterdir()} == SERVERS.keys()


@pytest.mark.parametrize(
    ("name", "command", "reply"), EVERY, ids=[f"{name}: {command[9:]}" for name, command, _ in EVERY]
)
def test_a_container_says_what_the_real_server_said(name: str, command: str, reply: Reply) -> None:
    with serve(CONTAINERS[SERVERS[name]]) as server:
        assert asked(server.url, command).comparable == reply.comparable


def test_a_container_counts_the_requests() -> None:
    with serve(CONTAINERS["ray"]) as server:
        assert asked(server.url, "curl -si / -H 'Content-Type: application/json' -d '[1,[2]]'").body == "[2,[4]]"
        assert server.requests == ["POST /"]


@pytest.mark.parametrize("name", ["cog", "cog_0_16", "cog_0_9"])
def test_a_cog_is_busy_while_a_test_wants_it(name: str) -> None:
    command = "curl -si /predictions -H 'Content-Type: application/json' -d '{\"input\": {\"x\": [1]}}'"
    with serve(CONTAINERS[name]) as server:
        BUSY.set()
        try:
            assert asked(server.url, command).status == "HTTP/1.1 409 Conflict"
        finally:
            BUSY.clear()
        assert asked(server.url, command).status == "HTTP/1.1 200 OK"


def test_embeddings_are_numbers_or_base64() -> None:
    with serve(CONTAINERS["embeddings"]) as server:
        for more, expected in (("", [5.0, 2.5]), (',"encoding_format":"base64"', "AACgQAAAIEA=")):
            body = f'{{"model":"m","input":"hello"{more}}}'
            found = asked(server.url, f"curl -si /v1/embeddings -H 'Content-Type: application/json' -d '{body}'")
            assert json.loads(found.body)["data"][0]["embedding"] == expected
