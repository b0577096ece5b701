"""What `gateway replay` finds: recorded requests at servers of every wire form, right ones and such as lie."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from gateway.assembly.registry import protocols
from gateway.core.errors import invalid_input
from gateway.core.frozen import replace
from gateway.core.requests import Response
from gateway.core.tensors import tensor
from gateway.policies.comparing import Tolerance
from gateway.tools.cassettes import report
from gateway.tools.cassettes.entries import Entry
from gateway.tools.cassettes.files import CassetteFile
from gateway.tools.cassettes.replaying import NoConnection, Replayed, Settings
from tests.interop.processes import free_port
from tests.running_gateway import reference
from tests.tools.cassettes.recording import FILE, WIRE_FORMS, entries, replayed
from tests.tools.cassettes.recordings.record import record

BY_NUMBER = {"theta": "input0", "logdensity": "output0"}
RENAMED = {"graphpipe": {"logdensity": "output0"}, "mip": BY_NUMBER, "umbridge": BY_NUMBER}
"""What servers whose protocol has no names call the tensors of `posterior`."""


@pytest.fixture(scope="module")
def cassette(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cassette")
    asyncio.run(record(folder, WIRE_FORMS))
    return folder / FILE


@asynccontextmanager
async def served(protocol: str) -> AsyncIterator[str]:
    async with reference(protocol, "posterior") as address:
        yield f"{protocol}://{address.rpartition('://')[2]}"


@pytest.mark.parametrize("protocol", WIRE_FORMS)
async def test_requests_of_every_wire_form_are_answered_alike_over_each_other(cassette: Path, protocol: str) -> None:
    settings = Settings(tensors=RENAMED.get(protocol, {}))
    async with served(protocol) as address:
        results = await replayed(address, cassette, settings)
    wrong = [f"{each.protocol} {each.operation}: {each.text}" for each in results if each.verdict != "equal"]
    assert len(results) == len(WIRE_FORMS) + 1
    if protocols()[protocol].traits.models.companions or protocols()[protocol].traits.wire.derivatives:
        assert wrong == []
    else:
        assert len(wrong) == 1
        assert wrong[0].startswith("umbridge gradient: status")


@pytest.mark.parametrize("protocol", WIRE_FORMS)
async def test_recorded_bytes_are_answered_alike_by_a_server_of_the_same_wire_form(
    cassette: Path, protocol: str
) -> None:
    async with served(protocol) as address:
        results = await replayed(address, cassette, Settings(wire=True), protocol)
    assert [(each.verdict, each.text) for each in results] == [("equal", "")] * (1 + (protocol == "umbridge"))


async def test_recorded_bytes_are_not_sent_to_a_server_of_another_wire_form(cassette: Path) -> None:
    async with served("v2-grpc") as address:
        with pytest.raises(ValueError, match=r"line 2 is a graphpipe message, but the server's protocol is v2-grpc"):
            await replayed(address, cassette, Settings(wire=True))


def changed(cassette: Path, path: Path, change: Callable[[Response], Response]) -> Path:
    """The recording of V2 over REST, with another recorded answer: seen from there it is the server that lies."""
    [entry] = [each for each in entries(cassette.parent) if each.protocol == "v2-rest"]
    assert isinstance(entry.outcome, Response)
    return written(path, replace(entry, outcome=change(entry.outcome)))


def of(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Response], Response]:
    def changing(response: Response) -> Response:
        [output] = response.outputs
        return replace(response, outputs=(tensor(output.name, change(output.array)),))

    return changing


def renamed(response: Response) -> Response:
    return replace(response, outputs=(replace(response.outputs[0], name="other"),))


ONE_ULP = of(lambda array: np.nextafter(array, np.inf))
A_THOUSANDTH = of(lambda array: array * (1 + 1e-3))


@pytest.mark.parametrize(
    ("change", "settings", "kinds"),
    [
        (ONE_ULP, Settings(), ("values",)),
        (ONE_ULP, Settings(tolerance=Tolerance(ulp=1)), ()),
        (A_THOUSANDTH, Settings(tolerance=Tolerance(rtol=1e-4, ulp=4)), ("values",)),
        (A_THOUSANDTH, Settings(tolerance=Tolerance(rtol=2e-3)), ()),
        (of(lambda array: array.reshape(-1)), Settings(), ("shape",)),
        (of(lambda array: array.astype("<f4")), Settings(), ("datatype",)),
        (of(lambda array: array.astype("<f4")), Settings(by_value=True, tolerance=Tolerance(rtol=1e-6)), ()),
        (renamed, Settings(), ("extra output", "missing output")),
        (renamed, Settings(by_position=True), ()),
        (renamed, Settings(tensors={"other": "logdensity"}), ()),
    ],
    ids=["1-ulp", "within-1-ulp", "1e-3", "within-2e-3", "shape", "datatype", "value", "name", "position", "renamed"],
)
async def test_differences_are_found(
    cassette: Path, tmp_path: Path, change: Callable[[Response], Response], settings: Settings, kinds: tuple[str, ...]
) -> None:
    path = changed(cassette, tmp_path / "changed.jsonl", change)
    async with served("v2-rest") as address:
        [result] = await replayed(address, path, settings)
    assert result.kinds == kinds, result.text
    assert result.verdict == ("different" if kinds else "equal")
    if change is ONE_ULP:
        assert result.distances["ulp"] == 1


async def test_an_error_in_place_of_an_answer_is_a_difference_and_no_answer_a_failure(
    cassette: Path, tmp_path: Path
) -> None:
    async with served("v2-grpc") as address:
        [result] = await replayed(address, cassette, Settings(models={"posterior": "none"}), "v2-rest")
        assert (result.verdict, result.kinds) == ("different", ("status",))
        assert result.text.startswith("status NOT_FOUND, expected OK: ")
        [entry] = [each for each in entries(cassette.parent) if each.protocol == "v2-rest"]
        error = written(tmp_path / "error.jsonl", replace(entry, outcome=invalid_input("too cold")))
        [result] = await replayed(address, error)
        assert result.text == "status OK, expected INVALID_ARGUMENT"
        [result] = await replayed(address, cassette, Settings(seconds=1e-9), "v2-rest")
        assert (result.verdict, result.text) == ("failed", "DEADLINE_EXCEEDED: no answer within 1e-09 s")
    with pytest.raises(NoConnection, match="connect"):
        await replayed(f"v2-grpc://127.0.0.1:{free_port()}", cassette)


def written(path: Path, entry: Entry) -> Path:
    file = CassetteFile(path)
    file.append(entry, 2**30)
    file.close()
    return path


async def test_an_entry_of_an_unknown_protocol_is_told(cassette: Path, tmp_path: Path) -> None:
    entry = replace(entries(cassette.parent)[0], protocol="json:own")
    async with served("v2-rest") as address:
        with pytest.raises(ValueError, match=r"^line 2: no protocol 'json:own'; expected .*; use --config FILE for "):
            await replayed(address, written(tmp_path / FILE, entry))


async def test_a_request_that_the_servers_protocol_cannot_carry_is_an_error(cassette: Path, tmp_path: Path) -> None:
    [entry] = [each for each in entries(cassette.parent) if each.protocol == "v2-rest"]
    texts = (tensor("theta", np.array([b"a", b"b"], object)),)
    entry = replace(entry, request=replace(entry.request, inputs=texts), outcome=invalid_input("no numbers"))
    async with served("umbridge") as address:
        [result] = await replayed(address, written(tmp_path / FILE, entry))
    assert (result.verdict, result.text) == ("equal", "")


def sending(change: Callable[[bytes], bytes]) -> Callable[[Entry], Entry]:
    return lambda each: replace(each, message=replace(each.message, parts=(change(bytes(each.message.body)),)))


CUT = (
    "status INVALID_ARGUMENT, expected OK: the recorded message is malformed: the message's length differs from the "
    "length in its header"
)
OTHER_MODEL = "status NOT_FOUND, expected OK: no model 'posterior'; this server has double"


@pytest.mark.parametrize(
    ("protocol", "model", "change", "text"),
    [
        ("mip", "posterior", sending(lambda body: body[:-1]), CUT),
        ("mip", "posterior", sending(lambda body: b""), CUT),
        (
            "v2-rest",
            "posterior",
            lambda each: replace(each, reply=replace(each.reply, parts=(b"{}",))),
            "status OK, expected INTERNAL",
        ),
        ("v2-rest", "double", lambda each: each, OTHER_MODEL),
    ],
    ids=["cut", "empty", "reply", "model"],
)
async def test_recorded_bytes_that_are_wrong_or_answered_otherwise_are_told(
    cassette: Path, tmp_path: Path, protocol: str, model: str, change: Callable[[Entry], Entry], text: str
) -> None:
    [entry] = [each for each in entries(cassette.parent) if each.protocol == protocol]
    async with reference(protocol, model) as address:
        place = f"{protocol}://{address.rpartition('://')[2]}"
        [result] = await replayed(place, written(tmp_path / FILE, change(entry)), Settings(wire=True))
    assert (result.verdict, result.text) == ("different", text)


async def test_recorded_bytes_for_a_server_that_is_gone_are_told(cassette: Path) -> None:
    with pytest.raises(NoConnection, match="connection refused"):
        await replayed(f"v2-rest://127.0.0.1:{free_port()}", cassette, Settings(wire=True), "v2-rest")


def test_only_the_first_differences_are_shown() -> None:
    wrong = Replayed(2, "m", "infer", "mip", "different", "status OK", ("status",), {}, 0.1, 0.1)
    lines = report.table([wrong] * (report.MOST_SHOWN + 3)).splitlines()
    assert len(lines) == 2 + report.MOST_SHOWN + 1
    assert lines[-1] == "and 3 more; --json prints all"


async def test_many_on_their_way_at_a_rate_come_in_the_order_of_the_file(cassette: Path) -> None:
    async with served("v2-grpc") as address:
        results = await replayed(address, cassette, Settings(in_flight=4, rate=1000))
    assert [each.line for each in results] == list(range(2, 2 + len(WIRE_FORMS) + 1))


async def test_the_reports_tell_what_was_found(cassette: Path, tmp_path: Path) -> None:
    path = changed(cassette, tmp_path / "changed.jsonl", ONE_ULP)
    async with served("v2-rest") as address:
        results = [*await replayed(address, path), *await replayed(address, cassette, protocol="v2-rest")]
    head, row, difference = report.table(results).splitlines()
    assert head.split()[:5] == ["model", "requests", "equal", "different", "failed"]
    assert row.split()[:5] == ["posterior", "2", "1", "1", "0"]
    assert ", ulp 1 " in row
    assert difference.startswith("line 2: posterior: different: output 'logdensity': 1 of 1 elements differ")
    told = json.loads(report.as_json(results))
    assert (told["equal"], told["different"], told["failed"]) == (1, 1, 0)
    assert told["models"][0]["largest"]["ulp"] == 1
    assert told["requests"][0]["kinds"] == ["values"]
    suite = ElementTree.fromstring(report.as_junit(results))[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    assert [len(case) for case in suite] == [1, 0]
