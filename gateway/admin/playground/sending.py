"""Send a request to a listener of this gateway as a client would, using the listener's address, transport and TLS.

The model's signature comes from the form, so the playground sends a single message, without preceding metadata
requests. The gateway's own Bridge adapts the tensors to the listener's protocol. `api` sends requests. `snippets` and
`explaining` need only the messages that a client would send.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from math import prod
from time import perf_counter

import numpy as np

from gateway.admin.playground.form import PlaygroundForm, PlaygroundFormError, declared, read_headers, read_request
from gateway.assembly.connecting import connect
from gateway.assembly.explain.explaining import ASKED
from gateway.assembly.explain.offline import NoConnector, NotSent
from gateway.assembly.explain.request import Call, Watch, WatchedConnector
from gateway.assembly.forms import spoken
from gateway.assembly.registry import transport
from gateway.bridge.backend import BackendSide
from gateway.bridge.bridge import Bridge
from gateway.bridge.derivatives import companion_signature
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signature_cache import Key, SignatureCache
from gateway.client.credentials import FixedHeaders, RawHeaders, check_headers
from gateway.client.model_server import PYTHON
from gateway.config.keys import Config
from gateway.config.listeners import ListenerConfig
from gateway.core.certificates import CertificateError, TlsFiles
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, invalid_input, invalid_output, refusal
from gateway.core.frozen import frozen, replace
from gateway.core.messages import Message
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import CALLS, DERIVATIVES, Operation, split_companion
from gateway.core.protocol import (
    Limits,
    Protocol,
    StreamBinding,
    Target,
    Traits,
    resolve_traits,
)
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import Tensor, tensor
from gateway.core.transport import Connector, Handler
from gateway.transports.certificates import client_context
from gateway.transports.tls import ClientTls

MOST_REPLY = 16 * 2**20
"""Maximum size of one response, and of the body of one stream message, in bytes."""
MOST_RESPONSES = 64
"""Maximum number of stream responses for which the playground waits."""
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "::": "[::1]", "": "127.0.0.1"}


@frozen
class Prepared:
    """A request that is ready to send: its destination, its protocol, and its headers."""

    form: PlaygroundForm
    config: ListenerConfig
    protocol: Protocol
    request: Request
    headers: RawHeaders
    signature: Signature
    """The model's signature, as clients of the protocol see it."""


@frozen
class PlaygroundCall:
    """One request as sent over the network, and all responses to it."""

    call: Call
    replies: tuple[Message, ...]


@frozen
class PlaygroundResult:
    """The result of a request. `calls` contains the messages, `error` is the reason for a missing response, and
    `seconds` is the total time."""

    calls: tuple[PlaygroundCall, ...]
    responses: tuple[Response, ...]
    error: GatewayError | None
    seconds: float


class _Notes(Watch):
    """A Watch that keeps every response of a stream, not only the last one."""

    def __init__(self) -> None:
        super().__init__()
        self._replies: dict[int, list[Message]] = {}

    def replied(self, call: Call, reply: Message) -> None:
        """Store a response to a call."""
        super().replied(call, reply)
        self._replies.setdefault(id(call), []).append(reply)

    def played(self) -> tuple[PlaygroundCall, ...]:
        """Return the calls so far."""
        return tuple(PlaygroundCall(each, tuple(self._replies.get(id(each), ()))) for each in self.calls)


def prepare(form: PlaygroundForm, config: Config) -> Prepared:
    """Return the request for the form, for a listener of `config`. Raises PlaygroundFormError."""
    listener = next((each for each in config.listeners if each.name == form.listener), None)
    if listener is None:
        raise PlaygroundFormError({"listener": f"unknown listener {form.listener!r}"})
    if form.protocol not in listener.protocols:
        text = f"listener {form.listener!r} has no protocol {form.protocol!r}; it has {', '.join(listener.protocols)}"
        raise PlaygroundFormError({"protocol": text})
    protocol = spoken(config)[form.protocol]
    request = read_request(form)
    models = protocol.traits.models
    can_name = models.named or models.may_be_named or models.one_at is not None
    if not can_name and form.model != listener.model:
        known = (
            f"this listener always selects {listener.model!r}, so enter that name"
            if listener.model
            else "this listener has no `model`, so add one to its configuration"
        )
        raise PlaygroundFormError({"model": f"clients of {protocol.name} cannot select a model; {known}"})
    headers = read_headers(form)
    try:
        check_headers(protocol, headers)
    except ValueError as error:
        raise PlaygroundFormError(
            {"key" if form.key and not form.headers.strip() else "headers": str(error)}
        ) from error
    if listener.allow_explain and not isinstance(protocol.binding, StreamBinding):
        headers = (*(each for each in headers if each[0] != ASKED), (ASKED, b"1"))
    signature = declared(form, request.inputs)
    if protocol.traits.wire.points:
        request = _with_points(request, signature)
        signature = replace(
            signature, inputs=tuple(map(_point, signature.inputs)), outputs=tuple(map(_point, signature.outputs))
        )
    own = _own_names(request.operation)
    signature = replace(signature, inputs=tuple(each for each in signature.inputs if each.name not in own))
    return Prepared(form, listener, protocol, request, headers, signature)


def _with_points(request: Request, signature: Signature) -> Request:
    """Return the request with its inputs as points, for a protocol of points such as UM-Bridge. The tensors that belong
    to the derivative, such as `sens`, stay unchanged. Raises PlaygroundFormError."""
    own, inputs = _own_names(request.operation), []
    for at, (each, spec) in enumerate(zip(request.inputs, signature.inputs, strict=True)):
        try:
            inputs.append(each if each.name in own else _as_point(each, spec))
        except ValueError as error:
            raise PlaygroundFormError({f"inputs.{at}.values": str(error)}) from error
    return replace(request, inputs=tuple(inputs))


async def play(prepared: Prepared, address: str, *, send: bool) -> PlaygroundResult:
    """Send the request to the listener at `address` and wait for the response. If `send` is False, only determine the
    messages that a client would send. If a response does not arrive in time, the result contains an error.

    Raises:
        PlaygroundFormError: the protocol cannot represent the request, or the request has no rows. Nothing was sent.
    """
    notes = _Notes()
    limits = Limits(message=MOST_REPLY)
    place = client_address(address, prepared)
    connector: Connector = NoConnector()
    if send:
        connector = connect(place, prepared.protocol, limits, tls=await asyncio.to_thread(_tls, prepared))
    if prepared.headers:
        connector = FixedHeaders(connector, prepared.protocol, prepared.headers)
    connector = WatchedConnector(notes, place, connector)
    began = perf_counter()
    responses: list[Response] = []
    error: GatewayError | None = None
    try:
        async with asyncio.timeout(prepared.form.seconds):
            async with aclosing(_responses(prepared, place, connector, notes, limits)) as answers:
                async for each in answers:
                    responses.append(each)
                    if len(responses) == MOST_RESPONSES:
                        break
    except NotSent:
        pass
    except TimeoutError:
        error = refusal(
            Reason.TIMEOUT, f"no response within {prepared.form.seconds:g} s; enter a longer wait, or check the server"
        )
    except DecodeError as wrong:  # about the request: `_ask` converts the errors of responses
        error = invalid_input(str(wrong))
    except GatewayError as found:
        error = found
    finally:
        seconds = perf_counter() - began
        await connector.close()
    calls = notes.played()
    if not calls:
        text = (
            error.message if error is not None else "the request has no rows, so nothing is sent; enter a row of values"
        )
        raise PlaygroundFormError({_field(prepared.form, text): text})
    return PlaygroundResult(calls, tuple(responses), error, seconds)


def client_address(address: str, prepared: Prepared) -> str:
    """Return the address at which a client on this machine reaches the listener, in the transport's format."""
    kind, tls = prepared.protocol.transport, prepared.config.tls is not None
    bare = address.removeprefix("tcp://")
    if bare.startswith("unix:"):
        return bare
    bare = on_loopback(bare)
    if kind == "http":
        return f"{'https' if tls else 'http'}://{bare}{prepared.config.prefix.get(prepared.protocol.name, '')}"
    if kind == "grpc":
        return f"grpcs://{bare}" if tls else bare
    return f"{'tcps' if tls else 'tcp'}://{bare}"


def on_loopback(address: str) -> str:
    """Return `host:port`, with a wildcard host replaced by loopback."""
    host, _, port = address.rpartition(":")
    return f"{_LOOPBACK.get(host, host)}:{port}"


async def _responses(
    prepared: Prepared, place: str, connector: Connector, notes: Watch, limits: Limits
) -> AsyncGenerator[Response, None]:
    protocol, request = notes.protocol(prepared.protocol), prepared.request
    batch, traits = resolve_traits(prepared.protocol, "", [place])
    target = Target("listener", place, _flavor(prepared), batch, limits)
    handler = partial(_ask, protocol, connector, target)
    responses = partial(_ask_stream, protocol, connector, target) if traits.wire.streams else None
    signatures = _Declared(prepared, handler, traits)
    side = BackendSide("listener", protocol.name, traits, handler, signatures, 1, responses, limits)
    bridge = Bridge(RouteSettings(), PYTHON, side)
    if request.operation is Operation.STREAM:
        async with aclosing(bridge.stream(request)) as answers:
            async for each in answers:
                yield each
        return
    companion = split_companion(request.model)
    is_companion = companion is not None and traits.wire.derivatives and request.operation is Operation.INFER
    answer = await (bridge.companion(companion[1]) if companion and is_companion else bridge)(request)
    assert isinstance(answer, Response)
    yield answer


def _flavor(prepared: Prepared) -> str:
    """Return the server type for requests to the listener: the configured type, or else the simplest one. If the
    protocol has a JSON format and a binary format, the simplest type uses JSON. If JSON cannot represent the request,
    return an empty string, which means that the request uses the full format."""
    configured = prepared.config.flavor.get(prepared.protocol.name, "")
    flavors = prepared.protocol.traits.servers.flavors
    if configured or flavors is None:
        return configured
    request = prepared.request
    has_16_bits = any(each.datatype in (Datatype.FP16, Datatype.BF16) for each in request.inputs)
    return "" if request.operation is Operation.STREAM or has_16_bits else flavors.detect(None)


async def _ask(protocol: Protocol, connector: Connector, target: Target, request: Request) -> Answer:
    reply = await connector.exchange(await asyncio.to_thread(protocol.encode_request, request, target))
    try:
        return await asyncio.to_thread(protocol.decode_response, reply, request, target)
    except DecodeError as error:
        raise invalid_output(f"the reply is malformed: {error}") from error


async def _ask_stream(
    protocol: Protocol, connector: Connector, target: Target, request: Request
) -> AsyncGenerator[Response, None]:
    message = await asyncio.to_thread(protocol.encode_request, request, target)
    async with aclosing(connector.stream(message)) as replies:
        async for reply in replies:
            try:
                answer = protocol.decode_response(reply, request, target)
            except DecodeError as error:
                raise invalid_output(f"a reply is malformed: {error}") from error
            assert isinstance(answer, Response)
            yield answer


class _Declared(SignatureCache):
    """Returns the signature that the form declares, instead of a signature fetched from the listener."""

    def __init__(self, prepared: Prepared, handler: Handler, traits: Traits) -> None:
        super().__init__(handler, traits, perf_counter)
        # The listener checks whether the model has the operation.
        self._signature = replace(prepared.signature, operations=CALLS)
        self._model = prepared.form.model

    async def get(self, key: Key) -> Signature:
        """Return the model's signature, or the signature of its derivative model for a derivative."""
        companion = split_companion(key[0])
        if companion is not None and companion[0] == self._model:
            return companion_signature(self._signature, companion[1])
        return self._signature

    async def confirm(self, key: Key) -> bool:
        """Return False, because the form's signature does not change."""
        return False


def _own_names(operation: Operation) -> tuple[str, ...]:
    return DERIVATIVES.get(operation, ())


def _point(spec: TensorSpec) -> TensorSpec:
    """Return an input or output as clients of a protocol of points see it: an FP64 vector per row."""
    sizes = spec.shape[1:] if spec.shape[:1] == (-1,) else spec.shape
    return replace(spec, datatype=Datatype.FP64, shape=(-1, -1 if not sizes or -1 in sizes else prod(sizes)))


def _as_point(given: Tensor, spec: TensorSpec) -> Tensor:
    """Return the tensor as FP64 rows. Raise ValueError if FP64 cannot represent every value."""
    if given.datatype is Datatype.BYTES:
        raise ValueError("this protocol supports only numbers; choose a numeric datatype")
    before = given.array
    after = before.astype(np.float64)
    if before.dtype.kind in "iu" and not all(
        int(wide) == int(each)
        for wide, each in zip(after.reshape(-1).tolist(), before.reshape(-1).tolist(), strict=True)
    ):
        raise ValueError(
            "this protocol sends FP64, which cannot represent all of these integers exactly; use smaller ones"
        )
    rows = given.shape[0] if len(given.shape) > 1 and spec.shape[:1] == (-1,) else 1
    return tensor(given.name, after.reshape(rows, -1) if after.size else after.reshape(rows, 0))


def _field(form: PlaygroundForm, text: str) -> str:
    """Return the form field that an error concerns: the input whose name is in the error's text, if any."""
    for at, each in enumerate(form.inputs):
        if each.name and f"input {each.name!r}" in text:
            return f"inputs.{at}.values"
    return ""


def _tls(prepared: Prepared) -> ClientTls | None:
    """Return TLS settings that accept only the listener's certificate. Raises PlaygroundFormError."""
    tls = prepared.config.tls
    if tls is None:
        return None
    alpn = transport(prepared.protocol.transport).ALPN
    try:
        context = client_context(TlsFiles(authorities=str(tls.certificate)), alpn=(alpn,) if alpn else ())
    except CertificateError as error:
        raise PlaygroundFormError({"listener": f"tls.certificate: {error}"}) from error
    # The file is the listener's own certificate. A server that has its private key is the listener, regardless of the
    # names in the certificate.
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return ClientTls(lambda: context)
