"""The file of keys."""

import json
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from gateway.auth.keys import MAX_FILE, KeyFileError, new_key, parse_keys, read_keys, write_keys

DIGEST = "a" * 64


def test_a_new_key_is_found_by_itself_and_is_not_in_the_file() -> None:
    key, entry = new_key("alice", note="ci: [x]")
    text = write_keys([entry, new_key("bob")[1]])
    assert key not in text
    assert key.removeprefix("gw_") not in text
    found = parse_keys(text.encode())
    assert found.find(key.encode()) == entry
    assert found.find(key.encode() + b"x") is None
    assert found.find(entry.sha256.encode()) is None


def test_keys_differ_and_are_long() -> None:
    keys = {new_key("a")[0] for _ in range(1000)}
    assert len(keys) == 1000
    assert {len(key) for key in keys} == {3 + 43}  # 256 bits in base64url


def test_a_file_may_be_json_and_scalars_stay_texts() -> None:
    document = {"keys": [{"sha256": sha256(b"k").hexdigest(), "principal": "no", "expires": "2030-01-01T00:00:00Z"}]}
    assert parse_keys(json.dumps(document).encode()).find(b"k") is not None
    found = parse_keys(f"keys: [{{sha256: '{sha256(b'k').hexdigest()}', principal: no}}]".encode()).find(b"k")
    assert found is not None
    assert found.principal == "no"


def test_expired_and_revoked_keys_say_so() -> None:
    now = datetime.now(UTC)
    assert new_key("a", now + timedelta(minutes=1))[1].why_invalid(now) == ""
    assert new_key("a", now)[1].why_invalid(now) == "the key has expired"
    assert new_key("a")[1].model_copy(update={"revoked": now}).why_invalid(now) == "the key is revoked"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("keys: [", "it is not YAML: line 2"),
        ("[]", "expected a map"),
        ("key: []", r"keys: Field required"),
        (f"keys: [{{sha256: {DIGEST}}}]", r"keys\[0\].principal: Field required"),
        ("keys: [{sha256: tiger, principal: a}]", r"keys\[0\].sha256: .*64 hexadecimal digits"),
        (f"keys: [{{sha256: {DIGEST}, principal: a, expires: tiger}}]", r"keys\[0\].expires"),
        (f"keys: [{{sha256: {DIGEST}, principal: a, key: tiger}}]", r"keys\[0\].key: Extra"),
        (f"keys: [{{sha256: {DIGEST}, principal: a}}, {{sha256: {DIGEST}, principal: b}}]", "listed twice"),
    ],
)
def test_a_wrong_file_is_told_by_its_place_and_without_values(text: str, why: str) -> None:
    with pytest.raises(KeyFileError, match=why) as error:
        parse_keys(text.encode())
    assert "tiger" not in str(error.value)
    assert DIGEST not in str(error.value)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="No such file"):
        read_keys(tmp_path / "none")
    with pytest.raises(KeyFileError, match="not a regular file"):
        read_keys(tmp_path)
    (tmp_path / "log").write_bytes(b"#" * (MAX_FILE + 1))
    with pytest.raises(KeyFileError, match=f"^larger than {MAX_FILE} bytes$"):
        read_keys(tmp_path / "log")


def test_a_file_may_have_no_keys_but_must_say_so() -> None:
    """An empty one may be one whose disk was full."""
    assert parse_keys(b"keys: []").find(b"") is None
    for text in (b"", b"\n", b"# none"):
        with pytest.raises(KeyFileError, match=r"^it is empty; a file without keys says `keys: \[\]`$"):
            parse_keys(text)
