"""Bodies like one that came before: what they say, and which of them go on as they came."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core import layouts
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.protocol import ListenerSettings
from gateway.core.types import Message, Request, Response
from gateway.protocols.umbridge import recalled
from tests.protocols.umbridge.wire import LISTENER, TARGET, UMBRIDGE, answered, asked, call, written

BODY = '{"name": "m", "input": [[1e3, 0.10]], "config": {}}'
CONFIGURED = '{"name": "m", "input": [[0.10]], "config": {"level": 1.50}}'
REPLY = '{"output": [[1e3, 0.10]]}'
LENIENT = {
    "an unknown member": BODY[:-1] + ',"x":1}',
    "no config": '{"name":"m","input":[[0.10]]}',
    "a null config": BODY.replace("{}", "null"),
    "blanks before": " " + BODY,
    "a byte order mark": "\ufeff" + BODY,
}


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> Iterator[None]:
    forget()
    yield
    forget()


def forget() -> None:
    recalled._requests.clear()
    recalled._responses.clear()


def sent(request: Request) -> bytes:
    return bytes(UMBRIDGE.encode_request(request, TARGET).body)


def said(value: Request | Response) -> tuple[object, ...]:
    request = isinstance(value, Request)
    tensors = value.inputs if isinstance(value, Request) else value.outputs
    read = [(each.name, each.datatype, each.shape, bytes(each.data), each.untyped) for each in tensors]
    return value.model, value.version, value.id, read, dict(value.parameters), request and value.flaw  # type: ignore[union-attr]


@pytest.mark.parametrize("body", [BODY, CONFIGURED, *LENIENT.values()])
def test_the_second_of_its_kind_is_read_without_its_text_and_says_the_same(
    body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = body.replace("0.10", "-2.50, 1e0")
    asked("/Evaluate", body)
    expected = said(asked("/Evaluate", other)), sent(asked("/Evaluate", other))
    assert len(recalled._requests) == 1
    forget()
    asked("/Evaluate", body)
    monkeypatch.setattr("gateway.protocols.umbridge.server.read", pytest.fail)
    second = asked("/Evaluate", other)
    assert (said(second), sent(second)) == expected
    assert second.inputs[0].array.tolist()[-2:] == [-2.5, 1.0]


def test_it_goes_on_as_it_came() -> None:
    asked("/Evaluate", BODY)
    message = Message("POST", "/Evaluate", parts=(BODY.encode(),), pattern="POST /Evaluate")
    assert UMBRIDGE.encode_request(UMBRIDGE.decode_request(message, LISTENER), TARGET).parts[0] is message.parts[0]


@pytest.mark.parametrize("body", LENIENT.values(), ids=list(LENIENT))
def test_what_says_more_or_less_is_written_anew(body: str) -> None:
    asked("/Evaluate", body)
    request = asked("/Evaluate", body)
    assert sent(request) == sent(replace(request, original=None)) != body.encode()


@pytest.mark.parametrize("change", [{"model": "n"}, {"parameters": {"config": "{}"}}, {"inputs": ()}], ids=str)
def test_a_changed_request_is_written_anew(change: dict[str, Any]) -> None:
    asked("/Evaluate", BODY)
    changed = replace(asked("/Evaluate", BODY), **change)
    assert sent(changed) == sent(replace(changed, original=None)) != BODY.encode()


def test_a_reply_comes_back_as_it_came() -> None:
    request, other = asked("/Evaluate", BODY), REPLY.replace("0.10", "0.20, 3.0")
    answered(REPLY, request)
    answer = answered(other, request)
    assert isinstance(answer, Response)
    assert len(recalled._responses) == 1
    assert answer.outputs[0].array.tolist() == [1000, 0.2, 3]
    assert written(answer, request) == other.encode()
    more = REPLY[:-1] + ',"x":1}'
    answered(more, request)
    assert written(answered(more, request), request) == b'{"output":[[1000.0,0.1]]}'


@pytest.mark.parametrize(
    "body",
    [
        BODY.replace("[[1e3, 0.10]]", "[[1.5],[0.5]]"),
        BODY.replace("[[1e3, 0.10]]", "[[1, 2]]"),
        BODY.replace("[[1e3, 0.10]]", "[[]]"),
        BODY.replace("[[1e3, 0.10]]", "[0.10]"),
        BODY.replace("[[1e3, 0.10]]", "0.10"),
        BODY.replace('"m"', '"\\u0061"'),
        BODY.replace('"m"', '"input"'),
        BODY.replace("{}", '{"input": [[0.10]]}'),
        BODY.replace('"m"', f'"{"m" * 1100}"'),
    ],
    ids=lambda each: each[:60],
)
def test_what_has_no_layout(body: str) -> None:
    asked("/Evaluate", body)
    assert not recalled._requests


@pytest.mark.parametrize("number", ["NaN", "-Infinity"])
def test_a_reply_with_a_number_that_json_does_not_have_changes_nothing_for_the_next(number: str) -> None:
    request = asked("/Evaluate", BODY)
    answered(REPLY.replace("0.10", number), request)
    answer = answered(REPLY, request)
    assert isinstance(answer, Response)
    assert written(answer, request) == REPLY.encode()
    asked("/Evaluate", CONFIGURED.replace("0.10", number))
    assert sent(asked("/Evaluate", CONFIGURED)) == CONFIGURED.encode()


def test_a_derivative_has_no_layout() -> None:
    asked("/Gradient", '{"name":"m","outWrt":0,"inWrt":0,"input":[[0.10]],"sens":[1.5],"config":{}}')
    assert not recalled._requests


@pytest.mark.parametrize(
    "numbers",
    [
        "NaN",
        "1e400",
        "true",
        '"1"',
        "[1.5]",
        "1.5]",
        "null",
        "1e19",
        "01.5",
        "1.5,",
        "",
        # with as many points as numbers
        '"1.5.",2',
        "true,1.5",
        "{},1.5",
        "[],1.5",
        "1.5,[2.5",
        "1.5e400",
        "1.5,36893488147419103232",
        "1.5e300,-0.0",
    ],
)
def test_numbers_that_are_none_are_read_as_ever(numbers: str) -> None:
    body = BODY.replace("1e3, 0.10", numbers)
    expected = outcome(body)
    asked("/Evaluate", BODY)
    assert outcome(body) == expected


def outcome(body: str) -> object:
    try:
        return said(asked("/Evaluate", body))
    except (DecodeError, GatewayError) as error:
        return str(error)


def test_the_limits_of_another_listener_hold() -> None:
    asked("/Evaluate", CONFIGURED)
    message = Message("POST", "/Evaluate", parts=(CONFIGURED.encode(),), pattern="POST /Evaluate")
    small = replace(LISTENER, limits=replace(LISTENER.limits, config=5))
    with pytest.raises(GatewayError, match="config of"):
        UMBRIDGE.decode_request(message, small)
    few = replace(LISTENER, limits=replace(LISTENER.limits, json_values=1))
    with pytest.raises(DecodeError, match="values"):
        UMBRIDGE.decode_request(message, few)


def test_any_limit_of_values_is_that_of_a_new_body() -> None:
    body = BODY.replace("1e3", ",".join(["1.5"] * 200))
    for values in range(60):
        few = replace(LISTENER, limits=replace(LISTENER.limits, json_values=values))

        def outcome(listener: ListenerSettings = few) -> object:
            try:
                return said(UMBRIDGE.decode_request(call("/Evaluate", body), listener))
            except DecodeError as error:
                return str(error)

        forget()
        expected = outcome()
        asked("/Evaluate", body)
        assert outcome() == expected, values


def test_the_latest_texts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "MOST", 3)
    for at in range(9):
        asked("/Evaluate", BODY.replace('"m"', f'"m{at}"'))
    assert [layout.model for layout in recalled._requests.values()] == ["m6", "m7", "m8"]


TEXTS = st.sampled_from([BODY, CONFIGURED, *LENIENT.values()])
PIECES = st.lists(
    st.one_of(
        st.floats().map(repr),
        st.integers(-(2**65), 2**65).map(str),
        st.sampled_from(["[", "]", "]]", "{", "}", '"', "\\", ",", '"input"', "0.10", "1e3", "true", " ", ":", "ä"]),
    ),
    max_size=4,
)


@given(TEXTS, st.data())
def test_a_body_says_the_same_whatever_came_before(body: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, min(len(body), start + 12)))
    other = body[:start] + data.draw(st.sampled_from(["", ","])).join(data.draw(PIECES)) + body[end:]
    forget()
    expected = outcome(other)
    forget()
    outcome(body)
    assert outcome(other) == expected
