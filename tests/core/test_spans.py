"""The trace of a request, as its headers tell it."""

import pytest

from gateway.core.errors import Reason, Status, refusal
from gateway.core.record import Record
from gateway.core.spans import UNSAMPLED, TraceContext, begin, read_context

PARENT = b"00-%032x-%016x-01" % (5, 7)


@pytest.mark.parametrize(
    ("states", "kept"),
    [
        ([], b""),
        ([b"a=1", b"b=2"], b"a=1,b=2"),
        ([b"a=" + b"x" * 510], b"a=" + b"x" * 510),
        ([b"a=" + b"x" * 511], b""),
        ([b"a=\xe4"], b""),
        ([b"a=\t1"], b""),
    ],
)
def test_a_state_that_no_header_may_hold_is_left_out(states: list[bytes], kept: bytes) -> None:
    context = read_context(PARENT, [(b"x", b"y"), *((b"tracestate", each) for each in states)], 0)
    assert isinstance(context, TraceContext)
    assert (context.trace, context.parent, context.is_sampled, context.state) == (5, 7, True, kept)


@pytest.mark.parametrize("parent", [b"", b"junk", PARENT + b"-more"])
def test_without_a_parent_a_share_is_sampled(parent: bytes) -> None:
    assert read_context(parent, (), 0) is UNSAMPLED
    begun = read_context(parent, (), 1)
    assert isinstance(begun, TraceContext)
    assert (begun.parent, begun.is_sampled, begun.trace > 0) == (0, True, True)


@pytest.mark.parametrize(
    ("error", "text", "failure"),
    [
        (refusal(Reason.TIMEOUT, "too late"), "too late", (Status.DEADLINE_EXCEEDED, Reason.TIMEOUT)),
        (ValueError("no"), "no", None),
        (ValueError(), "ValueError", None),
        (ValueError("x" * 2000), "x" * 1024, None),
    ],
)
def test_a_span_tells_the_error_that_ended_it(
    error: Exception, text: str, failure: tuple[Status, Reason] | None
) -> None:
    with pytest.raises(type(error)), begin(Record("in"), "try") as span:
        raise error
    assert (span.error, span.failure, span.ended > 0) == (text, failure, True)


def test_spans_of_a_request_that_is_not_traced_are_not_kept() -> None:
    record = Record("in")
    assert record.events is None
    assert begin(record, "try").name == "try"
    assert record.events is None
