"""Scripted model servers in this process, their protocol, and a placed backend of them."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any

from gateway.core.datatypes import DATATYPES
from gateway.core.errors import REASONS, GatewayError, Reason, Status, TransportError, not_found, refusal, unsupported
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.models import ModelEntry, Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.protocol import GrpcBinding, Protocol, Servers, Target, Traits, Wire
from gateway.core.requests import Answer, Request, Response
from gateway.core.statistics import ModelStatistics, Statistics
from gateway.routing.backend import Backend
from gateway.routing.balancing import LeastInFlight
from gateway.routing.choice import EndpointChoice
from gateway.routing.endpoint import Endpoint
from gateway.routing.placement.agreement import LoadCoordinator
from gateway.routing.placement.inventory import Inventory, InventoryRefresher
from gateway.routing.placement.operating import OperatedLoader
from gateway.routing.placement.plan import LoadSettings
from gateway.routing.placement.slots import PlacedSlots
from gateway.routing.placement.table import Placements
from gateway.routing.queue import QueueSettings
from gateway.routing.sending import Sender
from gateway.routing.slots import LocalSlots
from tests.clock import Clock
from tests.limits import settle


def _encode_request(request: Request, target: Target) -> Message:
    return Message(request.operation.value, request.model, query=request.version)


def _decode_response(reply: Message, request: Request, target: Target) -> Answer:
    said = json.loads(bytes(reply.body))
    if "error" in said:
        raise refusal(REASONS[said["error"]], said["text"])
    match request.operation:
        case Operation.MODELS:
            return tuple(ModelEntry(*entry) for entry in said["models"])
        case Operation.ALL_STATISTICS:
            return Statistics(tuple(ModelStatistics(name, "1") for name in said["statistics"]))
        case Operation.INFER | Operation.STREAM:
            return Response(id=said["server"], model=request.model)
        case Operation.METADATA:
            return Signature((TensorSpec("x", DATATYPES[said["datatype"]], (-1,)),), name=said["name"])
    return bool(said["done"])


def _unused(*_: object) -> Any:
    raise AssertionError("no client speaks the protocol of the scripted servers")


SCRIPTED = Protocol(
    "scripted",
    GrpcBinding(),
    (),
    _unused,
    _unused,
    _unused,
    _encode_request,
    _decode_response,
    traits=Traits(
        wire=Wire(streams=True),
        servers=Servers(extensions={Operation.LOAD: "repository", Operation.UNLOAD: "repository"}),
    ),
)


class Server:
    """A server with a repository of models, some of which are loaded. What happened is in `events`."""

    def __init__(self, name: str, held: Sequence[str] = (), listed: Sequence[str] = ()) -> None:
        self.name = name
        self.held: dict[str, tuple[str, ...]] = dict.fromkeys(held, ("1",))
        self.listed = list(dict.fromkeys([*held, *listed]))
        self.events: list[str] = []
        self.most_held = len(self.held)
        """The most models that were loaded at once."""
        self.refuses = False
        self.lies_about: set[str] = set()
        """Models that it lists as loaded, and says not to have when they are called."""
        self.load_errors: dict[str, str] = {}
        self.unload_errors: dict[str, str] = {}
        self.keeps: set[str] = set()
        """Models that stay loaded although it says that they are unloaded."""
        self.states: dict[str, str] = {}
        """The states of models that are not loaded, where it is not UNAVAILABLE."""
        self.errors: dict[Operation, GatewayError] = {}
        """What it answers to operations whatever it has."""
        self.gates: dict[str, asyncio.Event] = {}
        """Operations, as in `events`, that wait for an event."""
        self.lists = True
        self.datatype = "FP32"
        """That of its models' input."""

    async def exchange(self, message: Message) -> Message:
        """Answer one message."""
        if self.refuses:
            raise TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, f"{self.name}: connection refused", sent=False)
        event = f"{message.method} {message.path}".strip()
        self.events.append(event)
        if event in self.gates:
            await self.gates[event].wait()
        if self.refuses:
            raise TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, f"{self.name}: reset", sent=True)
        try:
            said = self._answer(Operation(message.method), message.path, message.query)
        except GatewayError as error:
            said = {"error": error.reason.value, "text": error.message}
        return Message(parts=(json.dumps(said).encode(),))

    async def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        """Answer one message, by two replies."""
        reply = await self.exchange(message)
        yield reply
        if b"error" not in bytes(reply.body):
            yield reply

    async def close(self) -> None:
        """Nothing is open."""

    def _answer(self, operation: Operation, model: str, version: str) -> dict[str, Any]:
        match operation:
            case failing if failing in self.errors:
                raise self.errors[failing]
            case Operation.MODELS:
                if not self.lists:
                    raise unsupported("no list")
                return {"models": list(self._index())}
            case Operation.ALL_STATISTICS:
                return {"statistics": sorted(self.held)}
            case Operation.LOAD:
                if model in self.load_errors:
                    raise refusal(Reason.MODEL_ERROR, self.load_errors[model])
                if model not in self.listed:
                    raise not_found(f"no model {model} in the repository")
                self.held[model] = ("1",)
                self.most_held = max(self.most_held, len(self.held))
            case Operation.UNLOAD:
                if model in self.unload_errors:
                    raise refusal(Reason.MODEL_ERROR, self.unload_errors[model])
                if model not in self.keeps:
                    self.held.pop(model, None)
            case Operation.MODEL_READY:
                return {"done": model in self.held and model not in self.lies_about}
            case _ if model:
                if model not in self.held or model in self.lies_about:
                    raise not_found(f"{self.name} has no model {model}")
                if version and version not in self.held[model]:
                    raise not_found(f"{self.name} has no version {version} of {model}")
        return {
            "done": True,
            "server": self.name,
            "name": model or next(iter(self.held), ""),
            "datatype": self.datatype,
        }

    def _index(self) -> Any:
        for model in dict.fromkeys([*self.listed, *self.held]):
            if model in self.held:
                yield from ((model, version, "READY") for version in self.held[model] or ("",))
            else:
                yield model, "", self.states.get(model, "UNAVAILABLE"), "unloaded"

    def calls(self, model: str = "") -> int:
        """How many inferences it was asked for."""
        return sum(each.startswith(f"infer {model}") for each in self.events)

    def restart(self) -> None:
        """Come back without any model."""
        self.refuses = False
        self.held = {}


class Fleet:
    """A placed backend of scripted servers, all of which have told what they have once `asked` was awaited."""

    def __init__(
        self,
        *servers: Server,
        limit: int = 0,
        names: Sequence[str] = (),
        queue: QueueSettings | None = None,
        protocol: Protocol = SCRIPTED,
        load: LoadSettings | None = None,
        agreement: LoadCoordinator | None = None,
    ) -> None:
        self.agreement = agreement
        self.clock = Clock()
        self.servers = servers
        self.load_settings = load
        self.endpoints = [self.endpoint(each) for each in servers]
        self.backend = self.new_backend(self.endpoints, limit, names, queue, protocol)

    def endpoint(self, server: Server) -> Endpoint:
        """An endpoint at a server."""
        return Endpoint(server.name, server, self.clock)

    def new_backend(
        self,
        endpoints: Sequence[Endpoint],
        limit: int = 0,
        names: Sequence[str] = (),
        queue: QueueSettings | None = None,
        protocol: Protocol = SCRIPTED,
    ) -> Backend:
        """Another backend of the same name, as a reload makes it."""
        sender = self.sender = Sender(Target("fleet"), protocol, endpoints, self.clock)
        local = LocalSlots("fleet", protocol.traits.servers, endpoints, limit, queue=queue, clock=self.clock)
        placements = Placements("fleet", lambda: EndpointChoice(LeastInFlight()), self.clock)
        inventory = Inventory(protocol, sender.target_of, names)
        refresher = InventoryRefresher(placements, inventory.of, 30.0, self.clock, randomly=lambda: 0.5)
        loader = None
        if protocol.traits.servers.extensions:
            settings = self.load_settings or LoadSettings()
            loader = OperatedLoader(placements, settings, protocol, inventory, self.clock, self.agreement)
            loader.sleep = self._turn
        is_on_demand, ask = self.load_settings is not None, sender.without_slot
        slots = PlacedSlots(local, ask, placements, inventory, refresher, loader, is_on_demand=is_on_demand)
        return Backend(sender, slots)

    async def _turn(self, seconds: float) -> None:
        """Wait without letting time pass."""
        await asyncio.sleep(0)

    @property
    def loader(self) -> OperatedLoader:
        """What loads the models of its backend."""
        assert self.slots.loader is not None
        return self.slots.loader

    @property
    def slots(self) -> PlacedSlots:
        """What gives the slots of its backend."""
        assert isinstance(self.backend.slots, PlacedSlots)
        return self.backend.slots

    async def asked(self) -> "Fleet":
        """Ask all servers what they have."""
        await asyncio.gather(*(self.slots.refresher.ask_soon(each) for each in self.backend.endpoints))
        return self

    async def ask(self, model: str, operation: Operation = Operation.INFER, **more: Any) -> Answer:
        """The answer to a request."""
        return await self.backend(Request(operation, model, **more))

    async def server_of(self, model: str, **more: Any) -> str:
        """The name of the server that answers an inference."""
        answer = await self.ask(model, **more)
        assert isinstance(answer, Response)
        assert answer.id is not None
        return answer.id

    async def begin(self, model: str, **more: Any) -> "asyncio.Task[str]":
        """As `server_of`, when the inference has gone as far as it can."""
        task = asyncio.ensure_future(self.server_of(model, **more))
        await settle()
        return task

    async def ask_in_turn(self, models: Iterable[str], **more: Any) -> None:
        """An inference of each model, a second after the one before."""
        for model in models:
            self.clock.now += 1
            await self.ask(model, **more)

    async def tick(self, seconds: float) -> None:
        """Let time pass, ask those that are due, and let everything run."""
        self.clock.now += seconds
        self.slots.refresher.round()
        await settle()
        if self.slots.is_on_demand:
            self.loader.tick()
            await settle()


def with_traits(**servers: Any) -> Protocol:
    """The protocol, of servers with other traits."""
    traits = SCRIPTED.traits
    return replace(SCRIPTED, traits=replace(traits, servers=replace(traits.servers, **servers)))
