"""The models of a scripted server of a fleet: what is loaded, and the faults that a test tells it to have.

Written from observations of Triton with explicit model control, and independent of the gateway:

- a load of a model that is loaded already loads it again; one of an unknown model fails at once
- an unload is answered before the model is gone; until then the index says UNLOADING;
  here only where a test asks for it
- the index has every model of the repository, those that were never loaded without version and state
- an inference of a model that is not loaded is "not found", in two texts
- an unload of a model that nobody knows succeeds
- after a load that failed the whole server is not ready, until a load of that model succeeds

    models = FleetModels(["a", "b"], most=1)
    models.failing["b"] = "CUDA out of memory"
    models.hanging.add("a")
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tests.peers.protobuf import Document

READY, LOADING, UNLOADING, UNAVAILABLE = "READY", "LOADING", "UNLOADING", "UNAVAILABLE"


class Refused(Exception):  # noqa: N818 - to the server it is an answer
    """What a request is answered with instead: the HTTP status, the name of gRPC's status, and the text."""

    def __init__(self, http: int, grpc: str, text: str) -> None:
        super().__init__(text)
        self.http, self.grpc, self.text = http, grpc, text


@dataclass(frozen=True)
class Answered:
    """The answer of a model: its own name, so that no answer of another passes for it, and the numbers that it got."""

    model: str
    version: str
    numbers: list[float]


class FleetModels:
    """The repository of one server and what of it is loaded. Every method may be called by several threads.

    The sets and dictionaries of faults, and `most` and `seconds`, are changed by tests at any time.
    """

    def __init__(self, repository: Iterable[str] = (), most: int | None = None) -> None:
        self.repository = list(repository)
        self.version = "1"
        self.most = most
        """A load of one model more is out of memory."""
        self.datatype = "FP64"
        """Of the input and its copy; two servers that differ in it have different signatures."""

        self.failing: dict[str, str] = {}
        """Models whose load fails, with the reason; for one that hangs as well it fails after `release`."""
        self.hanging: set[str] = set()
        """Models whose load does not end before `release`."""
        self.stuck: set[str] = set()
        """Models whose inferences are not answered before `release`."""
        self.lingering: set[str] = set()
        """Models that are being unloaded until `release`, and take their place as long."""
        self.claimed: set[str] = set()
        """Models that the index and the readiness say are loaded, and no inference finds."""
        self.hidden: set[str] = set()
        """Models that are loaded, and neither the index nor the readiness says so."""
        self.seconds = 0.0
        """How long an inference takes."""

        self.loads: Counter[str] = Counter()
        """Loads that began, by model."""
        self.unloads: Counter[str] = Counter()
        self.arrived: Counter[str] = Counter()
        """Inferences that came, answered or not."""
        self.calls: Counter[str] = Counter()
        """Inferences that a model answered."""
        self.missed: Counter[str] = Counter()
        """Inferences of models that were not loaded."""
        self.highest = 0
        """The most models that were loaded, loading or being unloaded at a time."""
        self.indexed = 0
        """How often the index was asked for."""
        self._states: dict[str, tuple[str, str]] = {}
        """State and reason of each model that was ever loaded."""
        self._changed = threading.Condition()
        self._lives = 0

    @property
    def held(self) -> set[str]:
        """The models that answer."""
        with self._changed:
            return {name for name, (state, _) in self._states.items() if state == READY}

    def wait_until_loading(self, model: str, seconds: float) -> bool:
        """Wait until a load of `model` is on its way; False if none is within `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: self._states.get(model, ("", ""))[0] == LOADING, seconds)

    # --- faults that happen at once ---

    def release(self, *models: str) -> None:
        """Let go what hangs, sticks or lingers: of these models, or of all."""
        with self._changed:
            for each in (self.hanging, self.stuck, self.lingering):
                each.difference_update(models or set(each))
            self._changed.notify_all()

    def forget(self, model: str) -> None:
        """Lose a loaded model, as if it had never been loaded."""
        with self._changed:
            self._states.pop(model, None)
            self._changed.notify_all()

    def preload(self, *models: str) -> None:
        """Have models loaded without being asked, as a server does at its start."""
        with self._changed:
            self._states.update(dict.fromkeys(models, (READY, "")))
            self._count()

    def empty(self) -> None:
        """Lose everything, as a restart does: what hangs ends without an effect."""
        with self._changed:
            self._states.clear()
            self._lives += 1
            self._changed.notify_all()

    # --- what a server answers ---

    def index(self, ready: bool = False) -> list[Document]:
        with self._changed:
            self.indexed += 1
            entries = [self._entry(name) for name in sorted({*self.repository, *self._states, *self.claimed})]
        return [each for each in entries if each.get("state") == READY or not ready]

    def is_ready(self, model: str, version: str = "") -> bool:
        with self._changed:
            return version in ("", self.version) and self._entry(model).get("state") == READY

    def server_ready(self) -> bool:
        with self._changed:
            return all(state == READY or reason == "unloaded" for state, reason in self._states.values())

    def metadata(self, model: str, version: str = "") -> Document:
        with self._changed:
            if model not in self.claimed:
                self._check(model, version)
        numbers = {"datatype": self.datatype, "shape": [-1]}
        return {
            "name": model,
            "versions": [self.version],
            "platform": "scripted",
            "inputs": [{"name": "x", **numbers}],
            "outputs": [{"name": "model", "datatype": "BYTES", "shape": [1]}, {"name": "y", **numbers}],
        }

    def load(self, model: str) -> None:
        with self._changed:
            if model not in self.repository:
                raise Refused(500, "INTERNAL", f"failed to load '{model}', failed to poll from model repository")
            self.loads[model] += 1
            if self.most is not None and len(self._places() | {model}) > self.most:
                raise self._failed(model, "Internal: out of memory")
            self._states[model] = (LOADING, "")
            self._count()
            self._changed.notify_all()
            self._wait(model, self.hanging)
            if model in self.failing:
                raise self._failed(model, f"Internal: {self.failing[model]}")
            self._states[model] = (READY, "")
            self._changed.notify_all()

    def unload(self, model: str) -> None:
        with self._changed:
            self.unloads[model] += 1
            if self._states.get(model, (UNAVAILABLE, ""))[0] == UNAVAILABLE:
                return
            if model not in self.lingering:
                self._states[model] = (UNAVAILABLE, "unloaded")
                return
            self._states[model] = (UNLOADING, "")
            threading.Thread(target=self._linger, args=(model,)).start()

    def infer(self, model: str, version: str, numbers: list[float]) -> Answered:
        with self._changed:
            self.arrived[model] += 1
            self._wait(model, self.stuck)
            self._check(model, version)
            self.calls[model] += 1
            seconds = self.seconds
        time.sleep(seconds)
        return Answered(model, self.version, numbers)

    # --- within the condition ---

    def _places(self) -> set[str]:
        """The models that take memory."""
        return {name for name, (state, _) in self._states.items() if state != UNAVAILABLE}

    def _count(self) -> None:
        self.highest = max(self.highest, len(self._places()))

    def _entry(self, model: str) -> Document:
        state, reason = self._states.get(model, ("", ""))
        if model in self.claimed:
            state, reason = READY, ""
        elif model in self.hidden:
            state, reason = UNAVAILABLE, "unloaded"
        if not state:
            return {"name": model}
        entry = {"name": model, "version": self.version, "state": state}
        return entry | ({"reason": reason} if reason else {})

    def _check(self, model: str, version: str) -> None:
        """Raises Refused if no inference of this model can be answered."""
        state = self._states.get(model, ("", ""))[0]
        if state == READY and version in ("", self.version):
            return
        self.missed[model] += 1
        if state == READY:
            why = f"version {version} is not found"
        else:
            why = "has no available versions" if state else "is not found"
        raise Refused(404, "NOT_FOUND", f"Request for unknown model: '{model}' {why}")

    def _failed(self, model: str, reason: str) -> Refused:
        self._states[model] = (UNAVAILABLE, reason)
        self._changed.notify_all()
        text = f"load failed for model '{model}': version {self.version} is at UNAVAILABLE state: {reason};\n"
        return Refused(400, "INVALID_ARGUMENT", text)

    def _wait(self, model: str, what: set[str]) -> None:
        """Wait while `model` is in `what`. Raises Refused after a restart, which nobody is there to read."""
        lives = self._lives
        self._changed.wait_for(lambda: model not in what or self._lives != lives)
        if self._lives != lives:
            raise Refused(503, "UNAVAILABLE", "the server ends")

    def _linger(self, model: str) -> None:
        with self._changed:
            lives = self._lives
            self._changed.wait_for(lambda: model not in self.lingering or self._lives != lives)
            if self._states.get(model) == (UNLOADING, ""):
                self._states[model] = (UNAVAILABLE, "unloaded")
