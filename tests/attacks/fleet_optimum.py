"""Computes how many model loads a fleet of servers needs for a sequence of requests, to compare a gateway with it.

A fleet has slots for models, spread over servers. A restart empties the slots of one server at a position of the
sequence. It consists of the index of the next request and the number of the server. `soak_fleet` uses the results.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate

Restart = tuple[int, int]
"""The index of the first request after the restart, and the server."""


def zipf(models: int, exponent: float, seed: int) -> Iterator[int]:
    """Yield model numbers endlessly. The frequency of the n-th most frequent model is proportional to `n **
    -exponent`."""
    source = random.Random(seed)
    weights = list(accumulate((number + 1) ** -exponent for number in range(models)))
    while True:
        yield bisect_right(weights, source.random() * weights[-1])


def loads_of_lru(sequence: Sequence[int], servers: int, most: int, restarts: Sequence[Restart] = ()) -> int:
    """Return the number of loads if the fleet always unloads its least recently used model, and a restart empties a
    server."""
    held: OrderedDict[int, int] = OrderedDict()  # model -> server; the least recently used one is the first
    room = dict.fromkeys(range(servers), most)
    pending = sorted(restarts)
    loads = 0
    for index, model in enumerate(sequence):
        while pending and pending[0][0] <= index:
            emptied = pending.pop(0)[1]
            held = OrderedDict((each, server) for each, server in held.items() if server != emptied)
            room[emptied] = most
        if model in held:
            held.move_to_end(model)
            continue
        loads += 1
        server = max(room, key=lambda each: room[each])
        if not room[server]:
            server = held.popitem(last=False)[1]
            room[server] += 1
        held[model] = server
        room[server] -= 1
    return loads


def least_loads(sequence: Sequence[int], places: int) -> int:
    """Return Belady's bound: the fleet unloads the model that is needed again last. No rule needs fewer loads."""
    times: defaultdict[int, list[int]] = defaultdict(list)
    for index, model in enumerate(sequence):
        times[model].append(index)
    never = len(sequence)
    for each in times.values():
        each.append(never)
        each.reverse()
    held: dict[int, int] = {}  # model -> index of its next request
    latest: list[tuple[int, int]] = []  # (-next, model), including outdated entries
    loads = 0
    for model in sequence:
        times[model].pop()
        following = times[model][-1]
        if model not in held:
            loads += 1
            while len(held) >= places:
                next_use, candidate = heapq.heappop(latest)
                if held.get(candidate) == -next_use:
                    del held[candidate]
        held[model] = following
        heapq.heappush(latest, (-following, model))
    return loads
