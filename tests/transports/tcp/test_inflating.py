import threading
from random import Random

from gateway.core.types import Message
from gateway.core.values import replace
from gateway.transports.tcp.inflating import IN_THREAD, inflate
from tests.transports.tcp import toy
from tests.transports.tcp.toy import HEADER, SQUEEZING, squeezed


async def test_what_takes_long_is_inflated_in_a_thread() -> None:
    where: list[bool] = []

    def noting(message: Message, limit: int) -> Message:
        where.append(threading.current_thread() is threading.main_thread())
        return toy.inflate(message, limit)

    framing = replace(SQUEEZING, inflate=noting)
    for text in (b"a" * IN_THREAD, b"a" * (IN_THREAD + 1), Random(1).randbytes(2 * IN_THREAD)):
        data = squeezed(text)
        found = await inflate(Message(parts=(data[: HEADER.size], data[HEADER.size :])), framing, 2**22)
        assert found.parts[1] == text
    # the second was begun on the loop, and given up where it became large
    assert where == [True, True, False, False]
