"""Explain why the response to a playground request contains no explanation."""

from collections.abc import Mapping

from gateway.admin.playground.sending import PlaygroundResult, Prepared
from gateway.assembly.explain.explaining import needed_to_explain
from gateway.assembly.listener_authentication import ListenerAuthentication
from gateway.auth.credentials import AUTHORIZATION, UnknownKeyError
from gateway.core.errors import GatewayError
from gateway.core.messages import Headers
from gateway.core.principal import Permission
from gateway.core.protocol import StreamBinding


def why_unexplained(prepared: Prepared, played: PlaygroundResult, guards: Mapping[str, ListenerAuthentication]) -> str:
    """Return one sentence that tells the user which setting, key or permission is missing. `guards` contains the
    authentication of the listeners with `auth`."""
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
