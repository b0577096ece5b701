"""Why the response to a request of the playground has no explanation."""

from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from gateway.admin.playground.explaining import why_unexplained
from gateway.admin.playground.form import PlaygroundForm
from gateway.admin.playground.sending import PlaygroundCall, PlaygroundResult, prepare
from gateway.assembly.authentication import Authentication
from gateway.assembly.explain.request import Call
from gateway.auth.keys import new_key
from gateway.core.messages import Message
from gateway.core.protocol import Target
from tests.admin.asking import key_file
from tests.admin.playground.gateways import DOUBLE
from tests.auth.issuer import Issuer
from tests.running_gateway import config_of

SOME, SOME_ENTRY = new_key("somebody")
CHIEF, CHIEF_ENTRY = new_key("chief")
ISSUER = Issuer()
ISSUER.rotate("ES256", "first")
CONFIG = f"""
listeners:
  - {{name: silent, bind: "127.0.0.1:1", protocols: [v2-rest]}}
  - {{name: mip, bind: "tcp://127.0.0.1:2", protocols: [mip], model: double, allow_explain: true}}
  - {{name: open, bind: "127.0.0.1:3", protocols: [v2-rest], allow_explain: true}}
  - {{name: brief, bind: "127.0.0.1:4", protocols: [v2-rest], allow_explain: true, errors: {{detail: brief}}}}
  - {{name: keys, bind: "127.0.0.1:5", protocols: [v2-rest], allow_explain: true, auth: {{}}}}
  - name: guests
    bind: "127.0.0.1:6"
    protocols: [v2-rest]
    allow_explain: true
    errors: {{detail: brief}}
    auth: {{anonymous: guest}}
auth: {{keys: {{file: KEYS}}, jwt: [{{issuer: "{ISSUER.url}", jwks: JWKS, audience: [models]}}]}}
permissions: {{whole: [{{operations: [infer, explain, details]}}], told: [{{operations: [explain]}}]}}
principals: {{somebody: {{permissions: [use]}}, chief: {{permissions: [whole]}}, guest: {{permissions: [told]}}}}
backends: {{lab: {{protocol: v2-rest, endpoints: ["127.0.0.1:7"]}}}}
routes: [{{match: {{model: "*"}}, backend: lab}}]
"""
MIP = {"listener": "mip", "protocol": "mip"}


@pytest.mark.parametrize(
    ("change", "replies", "why"),
    [
        ({"listener": "silent"}, 1, "Listener 'silent' does not explain requests: its key `allow_explain` is false."),
        (MIP, 1, "mip messages cannot contain an explanation."),
        ({"listener": "open"}, 0, "There was no response, so there is no explanation."),
        ({"listener": "open"}, 1, "The response has no explanation."),
        (
            {"listener": "brief"},
            1,
            "With `errors.detail: brief` listener 'brief' explains requests only to clients with the permission "
            "`details`, which clients can have only on a listener with `auth`.",
        ),
        (
            {"listener": "keys"},
            1,
            "The request has no key. Listener 'keys' explains requests to clients with the permission `explain`.",
        ),
        (
            {"listener": "keys", "key": "gw_wrong"},
            1,
            "The listener did not accept the key: unknown API key; ask the operator of this gateway for a valid one.",
        ),
        (
            {"listener": "keys", "key": ISSUER.token()},
            1,
            "The key that signed the token is not known yet; send the request again.",
        ),
        (
            {"listener": "keys", "key": SOME},
            1,
            "The key belongs to the principal 'somebody', which does not have the permission `explain` for model "
            "'double' on listener 'keys'.",
        ),
        (
            {"listener": "guests", "key": SOME},
            1,
            "The key belongs to the principal 'somebody', which does not have the permissions `explain` and `details` "
            "for model 'double' on listener 'guests'.",
        ),
        (
            {"listener": "guests"},
            1,
            "The request has no key, and 'guest', the principal of clients without a key, does not have the permission "
            "`details` for model 'double' on listener 'guests'.",
        ),
        (
            {"listener": "keys", "key": CHIEF},
            1,
            "The request failed before the gateway chose a route, so the playground cannot explain it.",
        ),
    ],
)
async def test_the_reason_names_the_missing_setting_or_permission(
    tmp_path: Path, change: dict[str, Any], replies: int, why: str
) -> None:
    (tmp_path / "jwks.json").write_bytes(ISSUER.jwks)
    keys = key_file(tmp_path, SOME_ENTRY, CHIEF_ENTRY)
    config = config_of(CONFIG.replace("KEYS", str(keys)).replace("JWKS", str(tmp_path / "jwks.json")))
    prepared = prepare(PlaygroundForm.model_validate({**DOUBLE, **change}), config)
    call = PlaygroundCall(Call(Target("listener", ""), None, Message(), 0.0), (Message(status=413),) * replies)
    played = PlaygroundResult((call,), (), None, 0.0)
    assert why_unexplained(prepared, played, Authentication(config, monotonic).guards) == why
