"""Explain a request in the playground without sending it, in the same way as `gateway explain` explains a client's
message."""

from base64 import b64encode

import orjson

from gateway.admin.playground.form import PlaygroundForm, PlaygroundFormError
from gateway.admin.playground.sending import play, prepare
from gateway.assembly.explain.recorded import RecordingError, arrive
from gateway.assembly.explain.request import Explanation, explain
from gateway.assembly.forms import spoken
from gateway.config.keys import Config


async def explained(form: PlaygroundForm, config: Config, address: str) -> Explanation:
    """Explain how a gateway with `config` processes the form's request, up to the message for the backend, which is not
    sent. The function assembles a separate gateway for this.

    Raises:
        PlaygroundFormError: the protocol cannot carry the request.
    """
    prepared = prepare(form, config)
    played = await play(prepared, address, send=False)
    if not played.calls:
        raise PlaygroundFormError({"": "the message depends on the model's server; send the request instead"})
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
