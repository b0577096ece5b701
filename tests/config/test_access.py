"""`auth`, `permissions` and `principals`: what is wrong with them, and what is probably a mistake."""

from pathlib import Path

import pytest

from gateway.auth import permissions
from gateway.auth.keys import new_key, write_keys
from gateway.config.access_checks import BUILT_IN
from tests.config import told

LISTENER = 'listeners: [{name: http, bind: "127.0.0.1:8080", protocols: [umbridge], auth: {}}]\n'
SOUND = """\
backends: {science: {protocol: umbridge, endpoints: ["127.0.0.1:4242"]}}
routes: [{match: {model: m}, backend: science}]
"""
KEYS = "auth: {keys: {file: FILE}}\n"
PRINCIPALS = "principals: {a: {permissions: [use]}}\n"


@pytest.fixture
def file(tmp_path: Path) -> str:
    written = tmp_path / "keys"
    written.write_text(write_keys([new_key("a")[1]]))
    return str(written)


def problems(text: str, file: str) -> str:
    return "\n".join(told.problems((text + SOUND).replace("FILE", file)))


def warnings(text: str, file: str) -> list[str]:
    return told.warnings((text + SOUND).replace("FILE", file))


def test_a_sound_configuration_has_neither(file: str) -> None:
    assert warnings(LISTENER + KEYS + PRINCIPALS, file) == []


MIP = LISTENER.replace("umbridge", "mip").replace("{}", "{AUTH}")
JWT = "auth: {jwt: {issuer: 'https://i.test', audience: [models]}}\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (LISTENER, "1:73: no credentials are configured"),
        (LISTENER.replace("auth: {}", "auth: {accept: [jwt]}") + KEYS, "1:89: the top-level `auth` has no 'jwt'"),
        (LISTENER.replace("{}}", "{anonymous: b}}") + KEYS + PRINCIPALS, "1:91: unknown principal 'b'"),
        (MIP.replace("AUTH", "") + KEYS, "clients of mip cannot send keys or tokens"),
        (LISTENER + "auth: {keys: {file: /no/such}}\n", "'/no/such' is not an API key file: cannot read the file"),
        (LISTENER + "auth: {keys: {file: keys.yaml}}\n", "2:21: expected an absolute path, got 'keys.yaml'"),
        (LISTENER + "auth: {keys: {file: FILE, header: authorization}}\n", "'authorization' cannot contain a key"),
        (LISTENER + JWT.replace("https://i.test", "i.test"), "expected the issuer's URL"),
        (LISTENER + JWT.replace("audience: [models]", "audience: [models], algorithms: [HS256]"), "got 'HS256'"),
        (LISTENER + JWT.replace("audience: [models]", "audience: [models], algorithms: [none]"), "got 'none'"),
        (LISTENER + JWT.replace("audience: [models]", "audience: []"), "2:"),
        (LISTENER + JWT.replace("audience: [models]", "audience: [m], jwks: FILE"), "is not an issuer's key set:"),
        (
            LISTENER + JWT.replace("audience: [models]", "audience: [m], jwks: jwks.json"),
            "2:61: expected a URL or an absolute path, got 'jwks.json'",
        ),
        (LISTENER + KEYS + "principals: {a: {permissions: [usw]}}\n", "3:32: unknown set of permissions 'usw'"),
        (LISTENER + KEYS + "permissions: {use: [{operations: [infer]}]}\n", "3:15: 'use' is built in"),
        (LISTENER + KEYS + "permissions: {u: [{operations: [infr]}]}\n", "3:33: expected infer, metadata, control"),
        (LISTENER + KEYS + "permissions: {u: [{operations: [infer], listeners: [x]}]}\n", "unknown listener 'x'"),
        ('admin: {bind: "0.0.0.0:1"}\n' + LISTENER + KEYS, "1:15: the status API must be on loopback"),
        ('scaler: {bind: "0.0.0.0:1"}\n' + LISTENER + KEYS, "1:16: the scaler shows backends and their load"),
        ('admin: {bind: "127.0.0.1:1", auth: {}}\n' + LISTENER.replace(", auth: {}", ""), "no credentials are"),
        (
            'admin: {bind: "127.0.0.1:1", auth: {}}\n' + LISTENER.replace(", auth: {}", "")
            + "auth: {certificates: [{identity: '*', principal: a}]}\n" + PRINCIPALS,
            "1:30: the status API needs keys or tokens: `auth: {keys: ...}` or `jwt`",
        ),
    ],
)  # fmt: skip
def test_problems(text: str, problem: str, file: str) -> None:
    assert problem in problems(text, file)


def test_the_status_api_may_be_anywhere_with_credentials(file: str) -> None:
    warnings('admin: {bind: "0.0.0.0:1", auth: {}}\n' + LISTENER + KEYS + PRINCIPALS, file)
    warnings('scaler: {bind: "0.0.0.0:1", open: true}\n' + LISTENER + KEYS + PRINCIPALS, file)


def test_mip_clients_may_be_anonymous(file: str) -> None:
    text = MIP.replace('"127', '"tcp://127').replace("AUTH", "anonymous: a")
    assert warnings(text + KEYS + PRINCIPALS, file) == []


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (LISTENER + KEYS, "2:1: warning: `principals` is missing"),
        (LISTENER.replace(", auth: {}", "") + KEYS, "no listener has `auth`"),
        (LISTENER.replace("}]", "}, {name: b, bind: '127.0.0.1:81', protocols: [umbridge]}]") + KEYS + PRINCIPALS,
         "listener 'b' has no `auth`"),
        (LISTENER + JWT.replace("https", "http") + PRINCIPALS, "come over plain http"),
        (
            LISTENER + PRINCIPALS + JWT.replace("jwt: {", "jwt: [{").replace("}}", "}, OTHER]}").replace(
                "OTHER", "{issuer: 'https://b', audience: [m]}"
            ),
            "'https://b': its tokens can name the principals of https://i.test, which has the same `prefix`; use "
            "different prefixes",
        ),
    ],
)  # fmt: skip
def test_warnings(text: str, warning: str, file: str) -> None:
    assert warning in "\n".join(warnings(text, file))


@pytest.mark.parametrize("issuers", ["{}", "[{}]"])
def test_a_number_of_an_issuer_may_come_from_the_environment(issuers: str) -> None:
    jwt = "{issuer: 'https://i.test', audience: [m], refresh: '${SECONDS}'}"
    text = f"{LISTENER}{PRINCIPALS}{SOUND}auth: {{jwt: {issuers.replace('{}', jwt)}}}\n"
    auth = told.read(text, SECONDS="60").auth
    assert auth is not None
    assert [each.refresh for each in auth.jwt] == [60]
    assert "got '${SECONDS}'" in told.problem(text, SECONDS="often")


def test_sending_keys_of_clients_on_is_warned_of(file: str) -> None:
    sent = SOUND.replace('"]}', '"], forward_headers: [x-api-key, Authorization, x-other]}')
    found = told.warnings((LISTENER + KEYS + PRINCIPALS + sent).replace("FILE", file))
    named = [each.partition("warning: ")[2].split(" forwards")[0] for each in found]
    assert named == ["'x-api-key'", "'Authorization'"]


def test_the_sets_that_are_built_in_are_known_to_the_checks() -> None:
    assert set(BUILT_IN) == set(permissions.BUILT_IN)
