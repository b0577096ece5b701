"""The paths of the playground: `/api/playground`, and below it `send`, `explain` and `snippets`.

These paths have the same access rules as all paths of the admin port. The playground gives its users only the access of
an ordinary client, because the request goes through the listener, which requires its own key.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import orjson
from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import BaseModel, ValidationError

from gateway.admin.playground.explaining import explained, why_unexplained
from gateway.admin.playground.form import MOST_SECONDS, SECONDS, PlaygroundForm, PlaygroundFormError, has_more_values
from gateway.admin.playground.sending import PlaygroundResult, Prepared, play, prepare
from gateway.admin.playground.shown import (
    LONGEST_ERROR,
    MOST_OUTPUTS,
    ShownForm,
    ShownMessage,
    ShownOutput,
    forms,
    shortened,
    shown_message,
    shown_output,
    shown_replies,
)
from gateway.admin.playground.snippets import Snippet, snippets
from gateway.admin.request_body import PLAYGROUND, read_body
from gateway.admin.state import GatewayState
from gateway.assembly.authentication import ListenerAuthentication
from gateway.assembly.explain.explaining import EXPLANATION
from gateway.assembly.forms import spoken
from gateway.config.keys import Config
from gateway.core.datatypes import Datatype
from gateway.core.messages import bytes_of
from gateway.core.operations import CALLS, DERIVATIVES, Operation
from gateway.core.protocol import Protocol as WireForm

MOST_VALUES = 5000
"""Maximum number of JSON values in a form. A form with 64 inputs and outputs contains 2,500 values."""
MOST_ERRORS = 10
"""Maximum number of a form's errors to report."""
AT_ONCE = 4
"""Maximum number of playground requests in progress. Additional requests get status 429."""
MOST_FORMS = 16
"""Maximum number of streamed responses that the page also shows in all other protocols."""
_FACTS = ("x-request-id", "gateway-route", "gateway-backend", "gateway-tries", "retry-after")
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")


class PlaygroundListener(BaseModel):
    """A listener, with the data that the form needs."""

    name: str
    address: str
    protocols: list[str]
    model: str
    tls: bool
    auth: bool
    explains: bool
    """True if the listener sets `allow_explain`, so the response to a request can contain an explanation."""


class PlaygroundSettings(BaseModel):
    """The options that the form offers. `operations` lists the operations of each protocol, and `derivatives` lists the
    tensor names of the derivatives."""

    listeners: list[PlaygroundListener]
    operations: dict[str, list[str]]
    derivatives: dict[str, list[str]]
    datatypes: list[str]
    seconds: float
    most_seconds: float


class SentCall(BaseModel):
    """One request as sent over the network, and its responses. Times are in seconds, or null if the event did not
    happen."""

    request: ShownMessage
    replies: list[ShownMessage]
    encode: float
    exchange: float | None
    decode: float | None


class Sent(BaseModel):
    """The result of a request. `status` is OK or the status of the error. `facts` contains response headers that
    describe the server that responded. `more_outputs` is the number of outputs that the list omits. `forms` contains
    the response in the other protocols. `explanation` is the content of the response's `gateway-explanation`; if null,
    `unexplained` contains the reason."""

    protocol: str
    status: str
    reason: str
    error: str
    seconds: float
    calls: list[SentCall]
    facts: dict[str, str]
    outputs: list[list[ShownOutput]]
    more_outputs: int
    forms: list[ShownForm]
    explanation: dict[str, Any] | None
    unexplained: str


class WrongForm(BaseModel):
    """The errors of an invalid form: a message for each invalid field, such as `inputs.0.values`. The field "" stands
    for the entire form."""

    errors: dict[str, str]


def add_playground(app: FastAPI, state: GatewayState) -> None:
    """Add the playground's paths to the admin port's application."""
    free = asyncio.Semaphore(AT_ONCE)
    described = {
        "requestBody": {
            "content": {"application/json": {"schema": PlaygroundForm.model_json_schema()}},
            "required": True,
        }
    }
    wrong: dict[int | str, dict[str, Any]] = {422: {"model": WrongForm}}

    @asynccontextmanager
    async def turn() -> AsyncIterator[None]:
        if free.locked():
            raise HTTPException(429, f"{AT_ONCE} playground requests are in progress; try again when one has ended")
        async with free:
            yield

    def addresses() -> Mapping[str, str]:
        return {name: each.address for name, each in state.listeners.items()}

    @app.get(PLAYGROUND)
    async def read_settings() -> PlaygroundSettings:
        """The options that the playground's form offers."""
        return _settings(state)

    @app.post(f"{PLAYGROUND}/send", openapi_extra=described, responses=wrong, response_model=Sent)
    async def send(request: Request) -> Response:
        """Send the form's request to its listener, as a client does over the network, and show the response."""
        form = await _read(request)
        async with turn():
            try:
                prepared = await asyncio.to_thread(prepare, form, state.config)
                played = await _while_asked(request, play(prepared, _address(state, form), send=True))
            except PlaygroundFormError as error:
                return _wrong(error)
            return await asyncio.to_thread(
                lambda: _json(_sent(prepared, played, state.assembly.authentication.guards).model_dump(mode="json"))
            )

    @app.post(f"{PLAYGROUND}/explain", openapi_extra=described, responses=wrong, response_model=dict[str, Any])
    async def explain(request: Request) -> Response:
        """Explain the form's request without sending it: its route, and the message for the backend."""
        form = await _read(request)
        async with turn():
            try:
                return await _apart(partial(explained, form, state.config, _address(state, form)))
            except PlaygroundFormError as error:
                return _wrong(error)

    @app.post(f"{PLAYGROUND}/snippets", openapi_extra=described, responses=wrong, response_model=list[Snippet])
    async def write_snippets(request: Request) -> Response:
        """The form's request as code for other clients, ready to copy."""
        form = await _read(request)
        async with turn():
            try:
                return await _apart(partial(_snippets, form, state.config, addresses(), _host(request)))
            except PlaygroundFormError as error:
                return _wrong(error)


def _host(request: Request) -> str:
    """Return the host name at which the user's browser reaches this machine, in URL format."""
    host = request.url.hostname or ""
    host = host if _HOST.fullmatch(host) else "127.0.0.1"
    return f"[{host}]" if ":" in host else host


async def _snippets(form: PlaygroundForm, config: Config, addresses: Mapping[str, str], host: str) -> list[object]:
    return [each.model_dump() for each in await snippets(form, config, addresses, host)]


async def _apart(work: Callable[[], Coroutine[Any, Any, object]]) -> Response:
    """Run `work` in a thread with its own event loop, so client requests do not wait for it, and return the result as
    JSON."""
    return await asyncio.to_thread(lambda: _json(asyncio.run(work())))


async def _while_asked(request: Request, work: Coroutine[Any, Any, PlaygroundResult]) -> PlaygroundResult:
    """Run `work` and return the result. If the client disconnects first, cancel `work`. The caller must have read the
    body of `request`."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise HTTPException(499, "the client disconnected")
        return await task
    finally:
        task.cancel()
        gone.cancel()


def _settings(state: GatewayState) -> PlaygroundSettings:
    listeners = [
        PlaygroundListener(
            name=each.name,
            address=state.listeners[each.name].address,
            protocols=list(each.protocols),
            model=each.model,
            tls=each.tls is not None,
            auth=each.auth is not None,
            explains=each.allow_explain,
        )
        for each in state.config.listeners
        if each.name in state.listeners
    ]
    return PlaygroundSettings(
        listeners=listeners,
        operations={name: _operations(each) for name, each in spoken(state.config).items()},
        derivatives={each.value: list(names) for each, names in DERIVATIVES.items()},
        datatypes=[each.value for each in Datatype],
        seconds=SECONDS,
        most_seconds=MOST_SECONDS,
    )


def _operations(protocol: WireForm) -> list[str]:
    traits = protocol.traits
    found = [Operation.INFER]
    found += [Operation.STREAM] if traits.wire.streams else []
    found += DERIVATIVES if traits.wire.derivatives or traits.models.companions else []
    return [each.value for each in found if each in CALLS]


def _address(state: GatewayState, form: PlaygroundForm) -> str:
    if form.listener not in state.listeners:
        raise PlaygroundFormError({"listener": f"unknown listener {form.listener!r}"})
    return state.listeners[form.listener].address


async def _read(request: Request) -> PlaygroundForm:
    """Return the form in the request body. The body must be JSON, because a page of another host cannot make a browser
    send this content type without a preflight request."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "expected Content-Type: application/json")
    return await asyncio.to_thread(_parsed, await read_body(request))


def _parsed(body: bytes) -> PlaygroundForm:
    if has_more_values(body.decode("latin-1"), MOST_VALUES):
        raise HTTPException(422, f"the form has more than {MOST_VALUES} JSON values; enter fewer")
    try:
        return PlaygroundForm.model_validate_json(body)
    except ValidationError as error:
        # Leave the values out of the message, because a value might be a key.
        told = [f"{'.'.join(map(str, each['loc'])) or 'form'}: {each['msg']}" for each in error.errors()[:MOST_ERRORS]]
        raise HTTPException(422, shortened("; ".join(told), LONGEST_ERROR)) from None


def _sent(prepared: Prepared, played: PlaygroundResult, guards: Mapping[str, ListenerAuthentication]) -> Sent:
    protocol, request = prepared.protocol, prepared.request
    error = played.error
    replies = [reply for call in played.calls for reply in call.replies]
    explanation = _explanation(replies)
    facts = {name: text for reply in replies[-1:] for name, text in reply.headers if name in _FACTS}
    return Sent(
        protocol=protocol.name,
        status="OK" if error is None else error.status.name,
        reason="" if error is None else error.reason.value,
        error="" if error is None else shortened(error.message, LONGEST_ERROR),
        seconds=played.seconds,
        calls=[
            SentCall(
                request=shown_message(each.call.message, protocol, prepared.headers),
                replies=shown_replies(each.replies[:MOST_FORMS], protocol),
                encode=each.call.encode,
                exchange=each.call.exchange,
                decode=each.call.decode,
            )
            for each in played.calls[:MOST_FORMS]
        ],
        facts=facts,
        outputs=[list(map(shown_output, each.outputs[:MOST_OUTPUTS])) for each in played.responses[:MOST_FORMS]],
        more_outputs=sum(max(0, len(each.outputs) - MOST_OUTPUTS) for each in played.responses[:MOST_FORMS]),
        forms=forms(played.responses[:MOST_FORMS], error, request, protocol.name, sum(map(bytes_of, replies))),
        explanation=explanation,
        unexplained="" if explanation is not None else why_unexplained(prepared, played, guards),
    )


def _explanation(replies: list[Any]) -> dict[str, Any] | None:
    for reply in replies:
        text = reply.headers.get(EXPLANATION.decode())
        if text:
            try:
                found: dict[str, Any] = orjson.loads(text)
            except orjson.JSONDecodeError:
                return None
            return found
    return None


def _wrong(error: PlaygroundFormError) -> Response:
    return _json(WrongForm(errors=error.errors).model_dump(), 422)


def _json(value: object, status: int = 200) -> Response:
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return Response(orjson.dumps(value), status, headers, "application/json")
