"""The supervisor's side of backends whose state holds for all workers."""

import asyncio
from inspect import isawaitable

from gateway.assembly.assembly import RequestsInFlight
from gateway.runtime.workers.owner import Generation, HeldSlots
from tests.limits import GENEROUS
from tests.runtime.app.test_reload import LISTENER, config, running

ONE = "{protocol: v2-rest, flavor: plain, endpoints: ['127.0.0.1:1'], max_in_flight: 1}"
TWO = ONE.replace("['127.0.0.1:1']", "['127.0.0.1:2', '127.0.0.1:1']")
ROUTES = "routes: [{match: {model: m}, backend: lab}]\n"
BEFORE = f"{LISTENER}backends: {{lab: {ONE}, goes: {ONE.replace(':1', ':3')}}}\n{ROUTES}"
AFTER = f"{LISTENER}backends: {{lab: {TWO}}}\n{ROUTES}"


async def taken(slots: HeldSlots, generation: int, backend: str = "lab") -> tuple[int, str]:
    """The number and the address of a slot."""
    found = slots.take(generation, backend, ("infer", "127.0.0.1", "m", "", {}, None), [], True)
    number, address, _ = await found if isawaitable(found) else found
    return number, address


async def test_a_call_gets_an_endpoint_of_the_configuration_that_it_began_with() -> None:
    """A worker changes to a new configuration later than the supervisor, and its requests in flight never do."""
    slots = HeldSlots()
    async with running(BEFORE) as gateway:
        slots.join(Generation(1, gateway.state.assembly.backends, gateway.state.assembly.streams))
        await gateway.reload(config(AFTER))
        slots.join(Generation(2, gateway.state.assembly.backends, gateway.state.assembly.streams))

        old, address = await taken(slots, 1)
        assert address == "127.0.0.1:1"
        async with asyncio.timeout(GENEROUS):
            waiting = asyncio.ensure_future(taken(slots, 1))
            assert (await taken(slots, 2))[1] == "127.0.0.1:2"  # the slot of the other one is known to be taken
            assert not waiting.done()
            slots.give_back(old, True)
            old, address = await waiting
            assert address == "127.0.0.1:1"
        of_other, address = await taken(slots, 1, "goes")
        assert address == "127.0.0.1:3"

        slots.give_back(old, True)
        slots.give_back(of_other, True)
        slots.leave(1)
        await gateway._replacements.all_ended()
        slots.end()


async def test_a_slot_that_is_given_back_before_a_call_has_joined_the_queue_is_its_own() -> None:
    """The supervisor's part of a wait is a task, which begins a moment after the message has come."""
    slots = HeldSlots()
    async with running(BEFORE) as gateway:
        slots.join(Generation(1, gateway.state.assembly.backends, gateway.state.assembly.streams))
        first, _ = await taken(slots, 1)
        waiting = slots.take(1, "lab", ("infer", "127.0.0.1", "m", "", {}, None), [], True)
        slots.give_back(first, True)
        async with asyncio.timeout(GENEROUS):
            assert (await waiting)[1:] == ("127.0.0.1:1", 0)
        slots.end()


async def test_a_generation_is_in_use_until_the_worker_has_left_it_once() -> None:
    slots, users = HeldSlots(), RequestsInFlight()
    for _ in range(2):
        slots.join(Generation(1, {}, users))
    slots.leave(1)
    async with asyncio.timeout(GENEROUS):
        await users.all_ended()
    slots.leave(1)  # a reload that failed tells it a second time
    users.began()
    users.ended()
    async with asyncio.timeout(GENEROUS):
        await users.all_ended()
