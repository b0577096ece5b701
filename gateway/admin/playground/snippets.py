"""Write the form's request as code for widely used clients. The code is ready to copy: it contains this gateway's
addresses and TLS settings, the model and the values.

A snippet reads the API key from the environment variable GATEWAY_KEY, because the gateway should not show the key. The
snippet reads the CA of the listener's certificate from the file `ca.crt`, because the gateway does not have the CA.
Names and values are quoted for the snippet's language.
"""

import json
import math
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from shlex import quote
from typing import TypeAlias

import numpy as np
from pydantic import BaseModel

from gateway.admin.playground.form import PlaygroundForm, PlaygroundFormError
from gateway.admin.playground.sending import Prepared, on_loopback, play, prepare
from gateway.assembly.explain.explaining import ASKED
from gateway.assembly.forms import described_form, spoken
from gateway.bridge.comparison import compare, rows_before
from gateway.client.credentials import AUTHORIZATION
from gateway.config.keys import Config
from gateway.config.listeners import ListenerConfig
from gateway.core.datatypes import Datatype
from gateway.core.frozen import frozen
from gateway.core.messages import Message
from gateway.core.operations import DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.protocol import HttpBinding, Protocol
from gateway.core.requests import Request
from gateway.core.tensors import Tensor

MOST_VALUES = 2000
"""Maximum number of input elements in a snippet."""
LONGEST_COMMAND = 64 * 2**10
"""Maximum size of a body in a command line, in bytes."""

_KEY = "GATEWAY_KEY"
_CA = "ca.crt"
_CONFIG = "gateway.yaml"
"""The name of the gateway's configuration file, which declares the JSON form."""
_SIMPLE_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_DERIVATIVE_OPTIONS = {
    Operation.GRADIENT: "--gradient",
    Operation.APPLY_JACOBIAN: "--apply-jacobian",
    Operation.APPLY_HESSIAN: "--apply-hessian",
}


class Snippet(BaseModel):
    """A snippet. If the client cannot send the request, `code` is empty, and `note` contains the reason; otherwise,
    `note` contains hints."""

    name: str
    language: str
    code: str = ""
    note: str = ""


class _NotPossible(Exception):  # noqa: N818 - not an error: a client lacks a feature
    """The client cannot send the request; the message gives the reason."""


@frozen
class _Place:
    """A request to one listener, with the data for a snippet. `address` is `host:port`, or `unix:PATH`."""

    prepared: Prepared
    address: str
    message: Message
    request: Request
    """The request, adapted to the protocol."""
    calls: int
    """The number of calls if each row needs its own call, and otherwise 0. `message` belongs to the first call."""
    described: Mapping[str, object] | None = None
    """The definition of the protocol, if it is a JSON form that the configuration declares."""

    @property
    def listener(self) -> ListenerConfig:
        return self.prepared.config

    @property
    def tls(self) -> bool:
        return self.listener.tls is not None

    @property
    def has_key(self) -> bool:
        return self.listener.auth is not None or any(name == AUTHORIZATION for name, _ in self.prepared.headers)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that the user typed."""
        left_out = (AUTHORIZATION, ASKED)
        return {name.decode(): text.decode() for name, text in self.prepared.headers if name not in left_out}

    @property
    def url(self) -> str:
        prefix = self.listener.prefix.get(self.prepared.protocol.name, "")
        return f"{'https' if self.tls else 'http'}://{self.address}{prefix}"

    @property
    def client_address(self) -> str:
        """The address in the format of `gateway call` and `gateway.client`."""
        name = f"{self.prepared.protocol.name}{'+tls' if self.tls else ''}"
        if self.address.startswith("unix:"):
            return f"{name}://{self.address.removeprefix('unix:').removeprefix('//')}"
        prefix = self.listener.prefix.get(self.prepared.protocol.name, "")
        return f"{name}://{self.address}{prefix}"


async def snippets(form: PlaygroundForm, config: Config, addresses: Mapping[str, str], host: str) -> list[Snippet]:
    """Return a snippet for each client. `addresses` contains the listeners' addresses; `host` is the host name at which
    the user reaches this machine. Raises PlaygroundFormError."""
    whole = prepare(form, config)
    elements = sum(math.prod(max(size, 1) for size in each.shape) for each in whole.request.inputs)  # empty lists count
    found: list[Snippet] = []
    for name, language, wanted, write in _CLIENTS:
        if elements > MOST_VALUES:
            note = f"{elements} values are too many for a snippet; it takes at most {MOST_VALUES}"
            found.append(Snippet(name=name, language=language, note=note))
            continue
        try:
            place = await _place(form, config, addresses, host, wanted(spoken(config)))
            code = write(place)
        except (_NotPossible, PlaygroundFormError) as error:
            found.append(Snippet(name=name, language=language, note=str(error)))
            continue
        found.append(Snippet(name=name, language=language, code=code, note="; ".join(_notes(place, form))))
    return found


async def _place(
    form: PlaygroundForm, config: Config, addresses: Mapping[str, str], host: str, wanted: Sequence[str]
) -> _Place:
    """Return a request that is addressed to the form's listener. If this listener serves none of the client's protocols
    (`wanted`), return a request that is addressed to another listener. `wanted` is empty if the client supports every
    protocol."""
    if wanted and form.protocol not in wanted:
        pairs = [(each, name) for name in wanted for each in config.listeners if name in each.protocols]
        pairs.sort(key=lambda pair: pair[0].name != form.listener)
        if not pairs:
            raise _NotPossible(f"a listener with {' or '.join(wanted)} is missing; add the protocol to a listener")
        listener, protocol = pairs[0]
        form = form.model_copy(update={"listener": listener.name, "protocol": protocol})
    prepared = prepare(form, config)
    address = addresses[form.listener]
    played = await play(prepared, address, send=False)
    call = played.calls[0].call
    assert call.request is not None
    described = described_form(config, prepared.protocol.name)
    return _Place(
        prepared,
        _for_clients(address, host),
        call.message,
        call.request,
        rows_before(compare(prepared.request.inputs, call.request.inputs, ())),
        described,
    )


def _for_clients(address: str, host: str) -> str:
    bare = address.removeprefix("tcp://")
    if bare.startswith("unix:"):
        return bare
    name, _, port = bare.rpartition(":")
    return f"{host}:{port}" if name in ("0.0.0.0", "[::]", "::", "") and host else on_loopback(bare)


def _notes(place: _Place, form: PlaygroundForm) -> Iterator[str]:
    if place.prepared.form.listener != form.listener or place.prepared.form.protocol != form.protocol:
        yield f"{place.prepared.protocol.name} at listener {place.listener.name}"
    if place.has_key:
        yield f"the snippet reads the key from the variable {_KEY}"
    if place.tls:
        yield f"{_CA} is the CA of the listener's certificate"


# Commands.


def _curl(place: _Place) -> str:
    message, body = place.message, _one_body(place)
    path = f"{message.path}?{message.query}" if message.query else message.path
    lines = [f"curl -sS --globoff {quote(place.url + path)}"]
    if message.method != "POST":
        lines[0] += f" -X {quote(message.method)}"
    if place.tls:
        lines.append(f"--cacert {_CA}")
    lines += [f"-H {quote(f'{name}: {text}')}" for name, text in _wire_headers(place)]
    if place.has_key:
        lines.append(f'-H "Authorization: Bearer ${_KEY}"')
    text = _text_of(body)
    lines.append("--data-binary @-" if text is None else f"--data-raw {quote(text)}")
    command = " \\\n  ".join(lines)
    return command if text is not None else f"printf %s {b64encode(body).decode()} | base64 -d | {command}"


def _gateway_call(place: _Place) -> str:
    form, request = place.prepared.form, place.prepared.request
    own = DERIVATIVES.get(request.operation, ())
    is_model_plain = not form.model.startswith("-")
    words = ["gateway call", quote(place.client_address)]
    words.append(quote(form.model) if is_model_plain else quote(f"--model={form.model}"))
    if form.version:
        words.append(quote(f"--model-version={form.version}"))
    if request.operation is Operation.STREAM:
        words.append("--stream")
    if request.operation in _DERIVATIVE_OPTIONS:
        words.append(_DERIVATIVE_OPTIONS[request.operation])
    lines = [" ".join(words)]
    typed = [each for each in request.inputs if each.name not in own]
    is_short = all(_is_short(each) for each in typed)
    settable = [*(typed if is_short else ()), *(each for each in request.inputs if each.name in own)]
    for each in settable:
        if each.name in INDEX_TENSORS:
            lines.append(f"--set {quote(f'{each.name}={int(each.array.reshape(-1)[0])}')}")
            continue
        lines.append(f"--set {quote(f'{each.name}={json.dumps(each.array.tolist())}')}")
    lines += [f"--parameter {quote(f'{name}={json.dumps(value)}')}" for name, value in request.parameters.items()]
    lines += [f"--header {quote(f'{name}={text}')}" for name, text in place.headers.items()]
    if place.described is not None:
        lines.append(f"--config {_CONFIG}")
    if place.tls:
        lines.append(f"--ca {_CA}")
    if place.has_key:
        lines.append(f'--key "${_KEY}"')
    if not is_short:
        lines[0] = f"printf %s {quote(json.dumps({'inputs': [_v2_json(each) for each in typed]}))} | {lines[0]}"
        lines[0] += " -" if is_model_plain else ""
        if not is_model_plain:
            raise _NotPossible("a model name that begins with - needs a separate file")
    return " \\\n  ".join(lines)


def _is_short(tensor: Tensor) -> bool:
    """Return True if `--set` produces exactly this tensor. The JSON in `--set` can express only FP64 and INT64."""
    is_known = tensor.datatype in (Datatype.FP64, Datatype.INT64)
    is_finite = is_known and bool(np.isfinite(tensor.array).all()) and tensor.elements > 0
    return is_finite and len(tensor.shape) > 0 and _SIMPLE_NAME.fullmatch(tensor.name) is not None


def _v2_json(tensor: Tensor) -> dict[str, object]:
    data = [each.decode() if isinstance(each, bytes) else each for each in _flat(tensor)]
    return {"name": tensor.name, "datatype": tensor.datatype.value, "shape": list(tensor.shape), "data": data}


# Python.


def _umbridge(place: _Place) -> str:
    if place.has_key or place.headers:
        raise _NotPossible("the client `umbridge` cannot send a key or headers")
    if place.calls > 1:
        raise _NotPossible(f"the client `umbridge` sends one point per call, but the request has {place.calls} rows")
    sent = json.loads(bytes(place.message.body))
    point, config = _literal(sent["input"]), _literal(sent.get("config", {}))
    match place.prepared.request.operation:
        case Operation.INFER:
            call = f"model({point}, {config})"
        case Operation.GRADIENT:
            call = f"model.gradient({sent['outWrt']}, {sent['inWrt']}, {point}, {_literal(sent['sens'])}, {config})"
        case Operation.APPLY_JACOBIAN:
            call = (
                f"model.apply_jacobian({sent['outWrt']}, {sent['inWrt']}, {point}, {_literal(sent['vec'])}, {config})"
            )
        case Operation.APPLY_HESSIAN:
            places = f"{sent['outWrt']}, {sent['inWrt1']}, {sent['inWrt2']}"
            vectors = f"{_literal(sent['sens'])}, {_literal(sent['vec'])}"
            call = f"model.apply_hessian({places}, {point}, {vectors}, {config})"
        case other:
            raise _NotPossible(f"UM-Bridge has no {other.value}")
    lines = [
        *(["import os", "", f'os.environ["REQUESTS_CA_BUNDLE"] = {_CA!r}'] if place.tls else []),
        "import umbridge",
        "",
        f"model = umbridge.HTTPModel({place.url!r}, {place.prepared.form.model!r})",
        f"print({call})",
    ]
    return "\n".join(lines)


def _tritonclient(module: str) -> Callable[[_Place], str]:
    def write(place: _Place) -> str:
        if place.prepared.request.operation is Operation.STREAM:
            raise _NotPossible("shown for requests with one response")
        request = place.request
        security = ""
        if place.tls:
            is_grpc = module == "grpc"
            security = (
                f", ssl=True, root_certificates={_CA!r}"
                if is_grpc
                else f", ssl=True, ssl_options={{'ca_certs': {_CA!r}}}"
            )
        arguments = [f"{request.model!r}", "inputs"]
        if request.version:
            arguments.append(f"model_version={request.version!r}")
        if request.parameters:
            arguments.append(f"parameters={_literal(dict(request.parameters))}")
        headers = [f"{name!r}: {text!r}" for name, text in place.headers.items()]
        if place.has_key:
            headers.append(f'"authorization": f"Bearer {{os.environ[{_KEY!r}]}}"')
        if headers:
            arguments.append(f"headers={{{', '.join(headers)}}}")
        lines = [
            *(["import os", ""] if place.has_key else []),
            "import numpy as np",
            f"from tritonclient.{module} import InferenceServerClient, InferInput",
            "",
            "inputs = []",
        ]
        for each in request.inputs:
            lines += [
                f"inputs.append(InferInput({each.name!r}, {list(each.shape)!r}, {each.datatype.value!r}))",
                f"inputs[-1].set_data_from_numpy({_array(each, 'np.float32')})",
            ]
        lines += [
            "",
            f"client = InferenceServerClient({place.address!r}{security})",
            f"result = client.infer({', '.join(arguments)})",
            f"for output in result.get_response(){'.outputs' if module == 'grpc' else '[' + repr('outputs') + ']'}:",
            f"    name = output{'.name' if module == 'grpc' else '[' + repr('name') + ']'}",
            "    print(name, result.as_numpy(name).tolist())",
        ]
        if place.listener.prefix.get(place.prepared.protocol.name):
            prefix = place.listener.prefix[place.prepared.protocol.name]
            lines = [each.replace(repr(place.address), repr(place.address + prefix)) for each in lines]
        return "\n".join(lines)

    return write


def _gateway_client(place: _Place) -> str:
    form, request = place.prepared.form, place.prepared.request
    own = DERIVATIVES.get(request.operation, ())
    client = [repr(place.client_address)]
    if place.has_key:
        client.append(f"key=os.environ[{_KEY!r}]")
    if place.tls:
        client.append(f"tls=Tls(ca={_CA!r})")
    if place.headers:
        client.append(f"headers={_literal(dict(place.headers))}")
    if place.described is not None:
        client.append(f"kind=ServerKind(form={_literal(dict(place.described))})")
    inputs = ", ".join(
        f"{each.name!r}: {_array(each, 'ml_dtypes.bfloat16')}" for each in request.inputs if each.name not in own
    )
    arguments = [repr(form.model), f"inputs={{{inputs}}}"]
    for each in request.inputs:
        if each.name in own:
            value = int(each.array.reshape(-1)[0]) if each.name in INDEX_TENSORS else _array(each, "np.float32")
            arguments.append(f"{each.name}={value}")
    if form.version:
        arguments.append(f"version={form.version!r}")
    if request.parameters:
        arguments.append(f"parameters={_literal(dict(request.parameters))}")
    call = f"client.{request.operation.value}({', '.join(arguments)})"
    shown = ["for name, array in outputs.items():", "    print(name, array.tolist())"]
    match request.operation:
        case Operation.INFER:
            body = [f"outputs = {call}", *shown]
        case Operation.STREAM:
            body = [f"for outputs in {call}:", *(f"    {each}" for each in shown)]
        case _:
            body = [f"print({call}.tolist())"]
    needs_bf16 = any(each.datatype is Datatype.BF16 for each in request.inputs)
    imported = ["Client", *(["ServerKind"] if place.described is not None else []), *(["Tls"] if place.tls else [])]
    return "\n".join(
        [
            *(["import os", ""] if place.has_key else []),
            *(["import ml_dtypes"] if needs_bf16 else []),
            "import numpy as np",
            f"from gateway.client import {', '.join(imported)}",
            "",
            f"with Client({', '.join(client)}) as client:",
            *(f"    {each}" for each in body),
        ]
    )


def _array(tensor: Tensor, bf16: str) -> str:
    """Return a Python expression that creates the tensor's array."""
    if tensor.datatype is Datatype.BYTES:
        return f"np.array({_literal(tensor.array.tolist())}, dtype=object).reshape({list(tensor.shape)!r})"
    dtype = bf16 if tensor.datatype is Datatype.BF16 else f"np.{tensor.array.dtype.name}"
    values = tensor.array.astype(np.float32) if tensor.datatype is Datatype.BF16 else tensor.array
    made = f"np.array({_literal(values.tolist())}, dtype={dtype})"
    return made if tensor.elements else f"{made}.reshape({list(tensor.shape)!r})"


def _literal(value: object) -> str:
    """Return a Python expression for this value, with numpy's names for NaN and infinities."""
    if isinstance(value, float) and not math.isfinite(value):
        return "np.nan" if math.isnan(value) else "np.inf" if value > 0 else "-np.inf"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name!r}: {_literal(each)}' for name, each in value.items())}}}"
    return repr(value)


def _flat(tensor: Tensor) -> list[object]:
    found: list[object] = tensor.array.reshape(-1).tolist()
    return found


def _one_body(place: _Place) -> bytes:
    if place.calls > 1:
        raise _NotPossible(f"{place.prepared.protocol.name} takes one row per call, but there are {place.calls} rows")
    body = bytes(place.message.body)
    if len(body) > LONGEST_COMMAND:
        raise _NotPossible(f"the body of {len(body)} bytes is too long for a snippet; enter fewer values")
    return body


def _wire_headers(place: _Place) -> Iterator[tuple[str, str]]:
    yield from place.message.headers
    yield from place.headers.items()


def _text_of(body: bytes) -> str | None:
    """Return the body as text that is safe in a shell command, or None if no safe text exists."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


_Wanted: TypeAlias = Callable[[Mapping[str, Protocol]], Sequence[str]]
"""Returns the protocols that a client supports; empty if the client supports all protocols."""


def _over_http(protocols: Mapping[str, Protocol]) -> Sequence[str]:
    return [name for name, each in protocols.items() if isinstance(each.binding, HttpBinding)]


def _only(*names: str) -> _Wanted:
    return lambda protocols: names


_CLIENTS: tuple[tuple[str, str, _Wanted, Callable[[_Place], str]], ...] = (
    ("curl", "bash", _over_http, _curl),
    ("umbridge", "python", _only("umbridge"), _umbridge),
    ("tritonclient.http", "python", _only("v2-rest"), _tritonclient("http")),
    ("tritonclient.grpc", "python", _only("v2-grpc"), _tritonclient("grpc")),
    ("gateway call", "bash", _only(), _gateway_call),
    ("gateway.client", "python", _only(), _gateway_client),
)
"""For each client, its name, its language, its protocols, and the function that writes its snippet."""
