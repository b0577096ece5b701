import os
import re
from pathlib import Path

import pytest

from gateway.config.scalars import MAX_FILE, Referenced, interpolate

ENVIRON = {"HOST": "triton", "PORT": "8000", "EMPTY": "", "TRICK": "${HOST}: [1, 2] # no"}

TABLE = (
    ("plain", "plain"), ("$", "$"), ("$HOST", "$HOST"), ("a}b", "a}b"), ("{HOST}", "{HOST}"),
    ("${HOST}", "triton"), ("http://${HOST}:${PORT}/x", "http://triton:8000/x"), ("${EMPTY}", ""),
    ("${EMPTY:-some}", "some"), ("${NONE:-}", ""), ("${NONE:-a:-b}", "a:-b"), ("${HOST:-b}", "triton"),
    ("$${HOST}", "${HOST}"), ("$$${HOST}", "$${HOST}"), ("$${${HOST}}", "${triton}"),
    ("${TRICK}", "${HOST}: [1, 2] # no"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), TABLE)
def test_references_are_replaced_once(text: str, expected: str) -> None:
    assert interpolate(text, ENVIRON) == expected


REFUSED = (
    ("${NONE}", "the environment variable NONE is not set; ${NONE:-default} gives it a default"),
    ("a${", "'${' without '}'; write '$${' for the characters '${'"),
    ("${A${HOST}}", "'${' without '}'; write '$${' for the characters '${'"),
    ("${}", "'${}' is not a reference; expected ${NAME}, ${NAME:-default} or ${file:/path}"),
    ("${1A}", "'${1A}' is not a reference; expected ${NAME}, ${NAME:-default} or ${file:/path}"),
    ("${HOST-x}", "'${HOST-x}' is not a reference; expected ${NAME}, ${NAME:-default} or ${file:/path}"),
    ("${file:token}", "${file:token} needs an absolute path"),
    (
        "${file:/nowhere/token}",
        "cannot read the file /nowhere/token: No such file or directory; check the path and its permissions",
    ),
    ("${file:/}", "/ is not a regular file"),
)


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_what_cannot_be_resolved_says_why(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        interpolate(text, ENVIRON)


def test_what_was_referred_to_remembers_how_it_was_written() -> None:
    alone, among = interpolate("${PORT}", ENVIRON), interpolate(":${PORT}", ENVIRON)
    assert isinstance(alone, Referenced)
    assert isinstance(among, Referenced)
    assert (alone.source, alone.alone) == ("${PORT}", True)
    assert (among.source, among.alone) == (":${PORT}", False)
    assert type(interpolate("$${PORT}", ENVIRON)) is str


def test_a_file_is_read_without_its_last_line_end(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"a\nb\r\n")
    assert interpolate(f"<${{file:{tmp_path}/token}}>", {}) == "<a\nb>"


def test_files_that_would_hurt_are_refused(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * (MAX_FILE + 1))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "emptied").write_bytes(b"\n")  # a secret that is being written, or whose disk is full
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a writer
    for name, why in (
        ("big", f"is larger than {MAX_FILE} bytes"), ("binary", "is not UTF-8"), ("pipe", "is not a regular file"),
        ("emptied", "is empty"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=why):
            interpolate(f"${{file:{tmp_path}/{name}}}", {})
