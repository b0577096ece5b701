import gc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import GatewayError, Reason
from gateway.transports.memory import (
    MIN_COUNTED,
    STEP,
    UNCOUNTED,
    ArrivingBody,
    ConnectionMemory,
    Memory,
    default_limit,
    machine_memory,
)

MIB = 2**20


@pytest.fixture(autouse=True)
def nothing_is_left_to_the_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@given(st.lists(st.binary(max_size=90_000), min_size=1, max_size=8), st.integers(0, 100_000))
def test_a_body_is_what_was_appended(pieces: list[bytes], more: int) -> None:
    memory, whole = Memory(10 * MIB), b"".join(pieces)
    arriving = ArrivingBody(len(whole) + more or 1, memory)
    for piece in pieces:
        arriving.append(piece)
    assert arriving.body == whole
    assert arriving.missing == (len(whole) + more or 1) - len(whole)


@pytest.mark.long
@given(st.integers(1, 5 * MIB), st.integers(1, 200_000))
def test_a_body_is_what_was_received_into_unfilled(size: int, at_most: int) -> None:
    memory, sent = Memory(100 * MIB), bytes(range(256)) * (size // 256 + 1)
    arriving = ArrivingBody(size, memory)
    while arriving.missing:
        unfilled = arriving.unfilled[:at_most]
        unfilled[:] = sent[arriving.filled_bytes : arriving.filled_bytes + len(unfilled)]
        arriving.filled(len(unfilled))
        arriving.reserve()
    assert arriving.body == sent[:size]


def test_an_announced_size_is_not_counted() -> None:
    memory = Memory(MIB)
    bodies = [ArrivingBody(64 * MIB, memory) for _ in range(100)]
    assert memory.used == 0
    bodies[0].append(b"x")
    assert memory.used == STEP


def test_bytes_are_counted_as_they_arrive_until_the_last_view_is_gone() -> None:
    memory = Memory(10 * MIB)
    arriving = ArrivingBody(3 * MIB, memory)
    for _ in range(48):
        arriving.append(bytes(64 * 1024))
    body = arriving.body
    del arriving
    assert memory.used == 3 * MIB
    tail = body[-1:]
    del body
    assert memory.used == 3 * MIB
    del tail
    assert memory.used == 0


def test_a_body_that_broke_off_is_freed() -> None:
    memory = Memory(10 * MIB)
    arriving = ArrivingBody(3 * MIB, memory)
    arriving.append(bytes(2 * MIB))
    assert memory.used == 2 * MIB
    del arriving
    assert memory.used == 0


def test_a_body_over_the_limit_is_refused_before_and_while_it_arrives() -> None:
    memory = Memory(MIB)
    with pytest.raises(GatewayError, match=f"no memory for {MIB + 1} bytes more: .* limits.memory is {MIB} bytes"):
        memory.check(MIB + 1)
    first, second = ArrivingBody(MIB, memory), ArrivingBody(MIB, memory)
    first.append(bytes(MIB // 2))
    second.append(bytes(MIB // 2))
    with pytest.raises(GatewayError) as refused:
        first.append(b"x")
    assert refused.value.reason is Reason.OVERLOADED
    del second
    assert memory.used == MIB // 2


def test_track_counts_large_bodies_only() -> None:
    memory = Memory(MIN_COUNTED)
    small, large = memory.track(bytes(MIN_COUNTED - 1)), memory.track(bytes(3 * MIN_COUNTED))
    assert (len(small), len(large), memory.used) == (MIN_COUNTED - 1, 3 * MIN_COUNTED, 3 * MIN_COUNTED)
    del large
    assert memory.used == 0


def test_the_default_is_half_of_what_the_process_may_use() -> None:
    assert 0 < default_limit() <= machine_memory() // 2


def test_the_peak_is_the_most_that_was_held_at_once() -> None:
    memory = Memory(10 * MIB)
    for _ in range(100):
        memory.track(bytes(MIN_COUNTED))
    assert (memory.used, memory.peak) == (0, MIN_COUNTED)


def test_refused_messages_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    memory = Memory(MIB)
    held = memory.track(bytes(MIN_COUNTED))
    for _ in range(3):
        with pytest.raises(GatewayError):
            memory.check(MIB)
    told = f"refused a message because memory is short: messages hold {len(held)} bytes, limits.memory is {MIB}"
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [("WARNING", told)]


def test_a_client_has_a_share_of_its_own_which_others_do_not_use_up() -> None:
    memory = Memory(10 * MIB)
    memory.per_client = MIB
    greedy, again, other = (memory.of_client(peer) for peer in ("10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1"))
    assert again is greedy
    assert other is not greedy
    body = ArrivingBody(MIB, greedy)
    body.append(bytes(MIB))
    told = r"this client hold 1048576 bytes, limits\.memory_per_client is 1048576"
    with pytest.raises(GatewayError, match=told) as refused:
        again.check(MIN_COUNTED)
    assert refused.value.reason is Reason.OVERLOADED
    other.check(MIB)
    assert memory.used == MIB
    del body
    again.check(MIB)
    assert (memory.used, greedy.used) == (0, 0)


def test_what_the_process_refuses_is_not_counted_for_the_client() -> None:
    memory = Memory(MIB)
    memory.per_client = 2 * MIB
    client = memory.of_client("10.0.0.1:1")
    client.add(MIB)
    with pytest.raises(GatewayError, match=r"limits\.memory is"):
        client.check(MIN_COUNTED)
    with pytest.raises(GatewayError, match=r"limits\.memory is"):
        client.add(1)
    assert (client.used, memory.used) == (MIB, MIB)


def test_a_client_is_forgotten_with_its_last_body() -> None:
    memory = Memory(10 * MIB)
    memory.per_client = MIB
    body = ArrivingBody(MIB, memory.of_client("10.0.0.1:1"))
    body.append(bytes(MIN_COUNTED))
    assert memory.of_client("10.0.0.1:2").used >= MIN_COUNTED
    del body
    assert not memory._clients


def test_without_a_limit_per_client_or_an_address_all_share_one_memory() -> None:
    memory = Memory(MIB)
    assert memory.of_client("10.0.0.1:1") is memory
    memory.per_client = MIB
    assert memory.of_client("") is memory


def test_small_things_of_a_connection_are_counted_in_steps_once_they_are_many() -> None:
    memory = Memory(10 * MIB)
    connection_memory = ConnectionMemory(memory)
    connection_memory.add(UNCOUNTED)
    assert memory.used == 0
    for _ in range(20):
        connection_memory.add(STEP)
    assert memory.used == 20 * STEP
    for _ in range(20):
        connection_memory.free(STEP)
    assert connection_memory.size == UNCOUNTED
    assert memory.used <= 4 * STEP
    connection_memory.free(UNCOUNTED)
    assert memory.used == 0


def test_small_things_of_a_connection_are_refused_beyond_the_limit_and_freed_with_it() -> None:
    memory = Memory(MIB)
    connection_memory = ConnectionMemory(memory)
    connection_memory.add(MIB)
    with pytest.raises(GatewayError, match=r"limits\.memory is 1048576 bytes"):
        connection_memory.add(UNCOUNTED + 1)
    assert connection_memory.size == MIB
    connection_memory.clear()
    assert memory.used == 0
