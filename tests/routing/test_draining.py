"""Endpoints that are drained for maintenance: no new calls, while those that they have go on."""

import pytest

from gateway.core.errors import GatewayError, Reason, Status
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.routing.backend import local_backend
from gateway.routing.endpoint import Drain, DrainState, Endpoint
from gateway.routing.queue import QueueSettings
from tests.limits import settle
from tests.routing.fakes import TOY, Wire
from tests.routing.test_backend import Lab


async def test_slots_of_a_drained_endpoint_wait_until_it_serves_again() -> None:
    lab = Lab(wires=2, limit=1)
    tasks = [await lab.asked(name) for name in "abcd"]
    lab.endpoints[0].set_drain(Drain(0))
    assert lab.backend.capacity == 1
    await lab.answer()
    assert (lab.counts, len(lab.backend.queue)) == ([1, 1], 2)
    lab.endpoints[0].set_drain(None)
    await settle()
    assert (lab.counts, len(lab.backend.queue), lab.backend.capacity) == ([2, 1], 1, 2)
    await lab.finish(*tasks)


async def test_while_its_models_are_moved_it_gets_calls() -> None:
    lab = Lab(wires=1, limit=1)
    drain = Drain(5, is_moving=True)
    lab.endpoints[0].set_drain(drain)
    task = await lab.asked()
    assert lab.counts == [1]
    drain.is_moving = False
    lab.endpoints[0].set_drain(drain)
    await lab.finish(task)
    with pytest.raises(GatewayError, match="all endpoints are drained"):
        await lab.ask()


@pytest.mark.parametrize("operation", [Operation.INFER, Operation.METADATA, Operation.LOAD])
async def test_a_backend_without_another_endpoint_says_that_it_is_drained(operation: Operation) -> None:
    lab = Lab(wires=1, limit=0)
    lab.endpoints[0].set_drain(Drain(0))
    with pytest.raises(GatewayError) as caught:
        await lab.ask(operation=operation)
    assert caught.value.status is Status.UNAVAILABLE
    assert caught.value.message == "backend 'lab': all endpoints are drained (host:0); undo a drain"
    assert not await lab.backend.is_ready()


async def test_calls_that_wait_fail_with_the_last_endpoint_unless_they_may_wait_for_one() -> None:
    lab = Lab(wires=1, limit=1)
    running, waiting = await lab.asked(), await lab.asked()
    lab.endpoints[0].set_drain(Drain(0))
    with pytest.raises(GatewayError, match="all endpoints are drained"):
        await waiting
    await lab.finish(running)

    patient = Lab(wires=1, limit=1, queue=QueueSettings(wait_for_endpoints=60))
    patient.endpoints[0].set_drain(Drain(0))
    waiting = await patient.asked()
    patient.endpoints[0].set_drain(None)
    await settle()
    await patient.finish(waiting)


async def test_control_operations_leave_a_drained_endpoint_out() -> None:
    lab = Lab(wires=2, limit=0)
    lab.endpoints[0].set_drain(Drain(0))
    task = await lab.asked(operation=Operation.LOAD)
    assert lab.counts == [0, 1]
    await lab.finish(task)


class SequenceLab(Lab):
    async def send(self, at: int, **parameters: object) -> None:
        """A request of sequence 7, which has to come to the endpoint at this index."""
        task = await self.asked(parameters={"sequence_id": 7, **parameters})
        if not task.done():
            self.wires[at].answer()
        await task


async def test_a_sequence_goes_on_at_a_drained_endpoint_for_the_time_of_the_drain() -> None:
    lab = SequenceLab(wires=2, limit=0)
    await lab.send(0, sequence_start=True)
    drain = Drain(60)
    lab.endpoints[0].set_drain(drain)
    await lab.send(0)
    assert lab.backend.local.sequences.count(lab.endpoints[0]) == 1
    await lab.send(0, sequence_end=True)
    assert lab.backend.local.sequences.count(lab.endpoints[0]) == 0
    await lab.send(1, sequence_start=True)


@pytest.mark.parametrize("ended", ["drained", "time over"])
async def test_the_state_of_a_sequence_is_not_sought_elsewhere(ended: str) -> None:
    lab = SequenceLab(wires=2, limit=0)
    await lab.send(0, sequence_start=True)
    drain = Drain(0 if ended == "time over" else 60)
    lab.endpoints[0].set_drain(drain)
    if ended == "drained":
        drain.state = DrainState.DRAINED
    with pytest.raises(GatewayError, match="sequence 7 was at endpoint host:0, which is drained; begin") as caught:
        await lab.send(1)
    assert caught.value.reason is Reason.FAILED_PRECONDITION
    await lab.send(1, sequence_start=True)
    await lab.send(1)


async def test_a_reload_keeps_a_drain_even_where_the_endpoint_is_reached_in_another_way() -> None:
    lab = Lab(wires=1, limit=0)
    drain = Drain(0)
    lab.endpoints[0].set_drain(drain)
    over_tls = Endpoint("host:0", Wire())
    replacing = local_backend(Target("lab"), TOY, [over_tls], 0)
    replacing.replace(lab.backend)
    assert (over_tls.drain, replacing.serving) == (drain, ())


async def test_a_drained_endpoint_that_leaves_takes_nothing_from_the_others() -> None:
    lab = Lab(wires=2, limit=1)
    for drain in (Drain(0), Drain(60)):
        lab.endpoints[0].set_drain(drain)
    running, waiting = await lab.asked("a"), await lab.asked("b")
    lab.backend.remove(lab.endpoints[0])
    await settle()
    assert (lab.counts, lab.backend.waiting, waiting.done()) == ([0, 1], 1, False)
    await lab.finish(running, waiting)
    assert lab.counts == [0, 2]


async def test_an_endpoint_that_joins_drained_gets_no_calls() -> None:
    lab = Lab(wires=1, limit=1)
    wire = Wire()
    joining = Endpoint("host:1", wire, lab.clock)
    joining.set_drain(Drain(0))
    lab.backend.add(joining)
    running, waiting = await lab.asked("a"), await lab.asked("b")
    assert (lab.counts, len(wire.sent), lab.backend.waiting) == ([1], 0, 1)
    await lab.finish(running, waiting)


async def test_who_waits_for_a_busy_endpoint_that_is_drained_gets_one_that_is_down() -> None:
    lab = Lab(wires=2, limit=1)
    lab.endpoints[0].note_failure("connection refused", unreachable=True)
    running, waiting = await lab.asked("a"), await lab.asked("b")
    assert lab.counts == [0, 1]
    lab.endpoints[1].set_drain(Drain(0))
    await settle()
    assert lab.counts == [1, 1]
    await lab.finish(running, waiting)
