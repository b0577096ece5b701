"""Explain a playground request without sending it, as `gateway explain` explains a client's message. For a request that
was sent, explain why its response contains no explanation."""

from base64 import b64encode
from collections.abc import Mapping

import orjson

from gateway.admin.playground.form import PlaygroundForm, PlaygroundFormError
from gateway.admin.playground.sending import PlaygroundResult, Prepared, play, prepare
from gateway.assembly.authentication import ListenerAuthentication
from gateway.assembly.explain.explaining import needed_to_explain
from gateway.assembly.explain.recorded import RecordingError, arrive
from gateway.assembly.explain.request import Explanation, explain
from gateway.assembly.forms import spoken
from gateway.auth.authenticator import AUTHORIZATION, UnknownKeyError
from gateway.config.keys import Config
from gateway.core.errors import GatewayError
from gateway.core.messages import Headers
from gateway.core.principal import Permission
from gateway.core.protocol import StreamBinding


async def explained(form: PlaygroundForm, config: Config, address: str) -> Explanation:
    """Explain how a gateway with `config` processes the form's request, up to the message for the backend, without
    sending the message. The function assembles a separate gateway for this purpose.

    Raises:
        PlaygroundFormError: the protocol cannot carry the request.
    """
    prepared = prepare(form, config)
    played = await play(prepared, address, send=False)
    message, name = played.calls[0].call.message, prepared.protocol.name
    path = f"{message.path}?{message.query}" if message.query else message.path
    document = {
        "protocol": name,
        "listener": prepared.config.name,
        "method": message.method,
        "path": prepared.config.prefix.get(name, "") + path,
        "headers": {**dict(message.headers), **{key.decode(): text.decode() for key, text in prepared.headers}},
        "body_base64": b64encode(bytes(message.body)).decode(),
    }
    try:
        arrival = arrive(orjson.dumps(document), config, spoken(config), name, prepared.config.name, "")
    except RecordingError as error:
        raise PlaygroundFormError({"": str(error)}) from error
    # Policies store their states by settings object. If both gateways shared these objects, closing this gateway would
    # stop the mirrors of the running gateway.
    return await explain(arrival, config.model_copy(deep=True), spoken(config), send=False)


def why_unexplained(prepared: Prepared, played: PlaygroundResult, guards: Mapping[str, ListenerAuthentication]) -> str:
    """Return one sentence that names the missing setting, key or permission. `guards` contains the authentication of
    the listeners with `auth`."""
    listener = prepared.config
    if not listener.allow_explain:
        return f"Listener {listener.name!r} does not explain requests: its key `allow_explain` is false."
    if isinstance(prepared.protocol.binding, StreamBinding):
        return f"{prepared.protocol.name} messages cannot contain an explanation."
    if not any(each.replies for each in played.calls):
        return "There was no response, so there is no explanation."
    guard, needed = guards.get(listener.name), needed_to_explain(listener)
    if guard is None:
        if not needed:
            return "The response has no explanation."
        return (
            f"With `errors.detail: brief` listener {listener.name!r} explains requests only to clients with the "
            f"permission `details`, which clients can have only on a listener with `auth`."
        )
    return _why_refused(prepared, guard, needed)


def _why_refused(prepared: Prepared, guard: ListenerAuthentication, needed: tuple[Permission, ...]) -> str:
    headers = Headers(prepared.headers)
    given = any(name in (AUTHORIZATION, guard.key_header) for name, _ in prepared.headers)
    listed = " and ".join(f"`{each}`" for each in needed)
    permissions = f"permission {listed}" if len(needed) == 1 else f"permissions {listed}"
    listener, model = prepared.config.name, prepared.form.model
    try:
        principal = guard.principal(headers)
    except UnknownKeyError:
        return "The key that signed the token is not known yet; send the request again."
    except GatewayError as error:
        if given:
            return f"The listener did not accept the key: {error.message}."
        return f"The request has no key. Listener {listener!r} explains requests to clients with the {permissions}."
    missing = [each for each in needed if not principal.has(each, model, listener)]
    if not missing:
        return "The request failed before the gateway chose a route, so the playground cannot explain it."
    lacks = " and ".join(f"`{each}`" for each in missing)
    kind = "permission" if len(missing) == 1 else "permissions"
    about = f"the {kind} {lacks} for model {model!r} on listener {listener!r}"
    if given:
        return f"The key belongs to the principal {principal.name!r}, which does not have {about}."
    return (
        f"The request has no key, and {principal.name!r}, the principal of clients without a key, does not have "
        f"{about}."
    )
