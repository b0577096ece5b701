"""Who a client is, by its headers and its certificate; and what of that is remembered."""

from base64 import b64encode
from datetime import UTC, datetime, timedelta

import pytest

from gateway.auth.authenticator import MOST_REMEMBERED, Authenticator, Credentials
from gateway.auth.keys import KeyEntry, key_file, new_key
from gateway.auth.permissions import Principals
from gateway.core.errors import GatewayError, Reason
from gateway.core.messages import NO_HEADERS, Headers
from tests.clock import Clock

ALICE, ALICE_ENTRY = new_key("alice")
_, BOB_ENTRY = new_key("bob")
NOW = datetime.now(UTC).timestamp()


def credentials(*entries: KeyEntry, clock: Clock | None = None, **more: object) -> Credentials:
    made = Credentials(Principals({}, {"*": ["use"]}), clock=clock or Clock(NOW), **more)  # type: ignore[arg-type]
    made.use_keys(key_file(entries or (ALICE_ENTRY, BOB_ENTRY)))
    return made


def headers(**fields: str) -> Headers:
    return Headers([(name.replace("_", "-").encode(), text.encode()) for name, text in fields.items()])


def basic(text: str) -> str:
    return "Basic " + b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "sent",
    [
        headers(authorization=f"Bearer {ALICE}"),
        headers(authorization=f"bearer  {ALICE} "),
        headers(authorization=basic(f"anybody:{ALICE}")),
        headers(authorization=basic(f":{ALICE}")),
        headers(x_api_key=ALICE),
        headers(authorization="Bearer for-another-server", x_api_key=ALICE),
    ],
)
def test_a_key_comes_in_its_own_header_or_as_bearer_or_basic(sent: Headers) -> None:
    ask = Authenticator(credentials())
    assert ask(sent, "").name == "alice"
    assert ask(sent, "").name == "alice"  # remembered


@pytest.mark.parametrize(
    "sent",
    [
        NO_HEADERS,
        headers(authorization="Bearer "),
        headers(authorization=ALICE),
        headers(authorization=f"Digest {ALICE}"),
        headers(authorization="Basic !!"),
        headers(authorization=basic(ALICE)),
        headers(authorization=basic(f"{ALICE}:")),
        headers(x_api_key=f"Bearer {ALICE}"),
        headers(x_api_key="", authorization=f"Bearer {ALICE}"),
        headers(x_api_key=ALICE_ENTRY.sha256),
        headers(x_api_key="wrong", authorization=f"Bearer {ALICE}"),
        headers(x_other=ALICE),
    ],
)
def test_anything_else_is_refused_without_the_credential_in_the_text(sent: Headers) -> None:
    ask = Authenticator(credentials())
    ask(headers(x_api_key=ALICE), "")
    ask(headers(authorization=f"Bearer {ALICE}"), "")
    with pytest.raises(GatewayError) as refused:
        ask(sent, "")
    assert refused.value.reason is Reason.UNAUTHENTICATED
    assert ALICE not in refused.value.message
    assert "wrong" not in refused.value.message


def test_a_remembered_key_ends_when_it_expires() -> None:
    clock = Clock(NOW)
    key, entry = new_key("alice", datetime.fromtimestamp(clock.now, UTC) + timedelta(seconds=10))
    ask = Authenticator(credentials(entry, clock=clock))
    assert ask(headers(x_api_key=key), "").name == "alice"
    clock.now += 10
    with pytest.raises(GatewayError, match="expired"):
        ask(headers(x_api_key=key), "")


def test_a_remembered_key_ends_when_the_keys_change() -> None:
    known = credentials()
    ask = Authenticator(known)
    ask(headers(x_api_key=ALICE), "")
    known.use_keys(key_file([ALICE_ENTRY.model_copy(update={"revoked": datetime.now(UTC)})]))
    with pytest.raises(GatewayError, match="revoked"):
        ask(headers(x_api_key=ALICE), "")


def test_wrong_keys_are_not_remembered_and_right_ones_are_bounded() -> None:
    ask = Authenticator(credentials())
    for number in range(2 * MOST_REMEMBERED):
        with pytest.raises(GatewayError):
            ask(headers(x_api_key=f"gw_{number}"), "")
    assert len(ask) == 0
    for number in range(2 * MOST_REMEMBERED):
        ask(headers(authorization=basic(f"{number}:{ALICE}")), "")
    assert len(ask) <= MOST_REMEMBERED


def test_clients_without_credentials_are_anonymous_where_allowed_but_not_with_wrong_ones() -> None:
    ask = Authenticator(credentials(), "guest")
    assert ask(NO_HEADERS, "").name == "guest"
    with pytest.raises(GatewayError):
        ask(headers(x_api_key="wrong"), "")


def test_certificates_stand_for_principals_by_glob() -> None:
    known = credentials(certificates=[("spiffe://lab/ci-*", "ci"), ("CN=*", "cert:*")])
    ask = Authenticator(known)
    assert ask(NO_HEADERS, "spiffe://lab/ci-7").name == "ci"
    assert ask(NO_HEADERS, "CN=bob").name == "cert:CN=bob"
    assert ask(headers(x_api_key=ALICE), "CN=bob").name == "alice"
    with pytest.raises(GatewayError):
        ask(NO_HEADERS, "spiffe://evil")
    with pytest.raises(GatewayError):
        Authenticator(known, certificates=False)(NO_HEADERS, "CN=bob")


def test_a_listener_accepts_only_what_it_is_said_to() -> None:
    with pytest.raises(GatewayError):
        Authenticator(credentials(), keys=False)(headers(x_api_key=ALICE), "")
    text = "expected a token: three parts with dots between them"
    with pytest.raises(GatewayError, match=text):
        Authenticator(credentials(verify=lambda raw: None), keys=False)(headers(authorization=f"Bearer {ALICE}"), "")


def test_uses_of_a_key_by_other_processes_are_added() -> None:
    known = credentials()
    known.add_uses(ALICE_ENTRY.id, NOW + 5, 2)
    Authenticator(known)(headers(x_api_key=ALICE), "")
    known.add_uses(ALICE_ENTRY.id, NOW - 5, 3)
    assert (known.uses[ALICE_ENTRY.id].last, known.uses[ALICE_ENTRY.id].number) == (NOW, 6)


def test_the_principals_that_are_remembered_are_bounded() -> None:
    """The issuer of tokens chooses their names."""
    principals = Principals({}, {"*": ["use"]})
    first = principals.find("0")
    assert principals.find("0") is first
    for number in range(1, 4097):
        principals.find(str(number))
    assert principals.find("0") is not first
    assert principals.find("0").name == "0"
