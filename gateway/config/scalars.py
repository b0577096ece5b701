"""The values of scalars: plain scalars by the core schema of YAML 1.2 (section 10.3.2), which avoids the traps of YAML
1.1: `no`, `on`, `12:30`, `1_000` and `2024-01-01` are text, and `1e3` is a number; and the references in scalars:
`${ENV}`, `${ENV:-default}` and `${file:/path}`, where `$${` is an escape for `${`.

The value of a reference is plain text: it is not parsed as YAML, and references in it are not replaced. The value can
be a secret, so messages show the reference instead.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

Scalar: TypeAlias = bool | int | float | str | None

_SPECIAL: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}

# An integer with more digits than any datatype can hold stays text, because Python refuses to convert thousands of
# digits.
_NUMBERS: tuple[tuple[re.Pattern[str], Callable[[str], int | float]], ...] = (
    (re.compile(r"[-+]?[0-9]{1,40}"), int),
    (re.compile(r"0o[0-7]{1,40}"), lambda text: int(text[2:], 8)),
    (re.compile(r"0x[0-9a-fA-F]{1,40}"), lambda text: int(text[2:], 16)),
    (re.compile(r"[-+]?((\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)"), lambda text: float(text.replace(".", ""))),
    (re.compile(r"\.(nan|NaN|NAN)"), lambda text: float("nan")),
)


def other_words(flag: bool) -> str:
    """Return the words that are the boolean `flag` in YAML 1.1 but text in YAML 1.2, as a clause for an error
    message."""
    words, boolean = ("y, yes and on", "true") if flag else ("n, no and off", "false")
    return f"YAML 1.1, which Helm reads, turns {words} into {boolean}"


def resolve(text: str) -> Scalar:
    """Return the value of the plain scalar `text`."""
    if text in _SPECIAL:
        return _SPECIAL[text]
    for pattern, number in _NUMBERS:
        if pattern.fullmatch(text):
            return number(text)
    return text


MAX_FILE = 64 * 2**10
"""Maximum size of a referenced file, in bytes. A certificate chain, the largest usual value, is smaller than 20 KiB."""

_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


class Referenced(str):
    """Text in which references were replaced. `source` is the original text. `alone` is True if the original text is a
    single reference."""

    __slots__ = ("alone", "source")
    source: str
    alone: bool


def named_files(text: str) -> frozenset[Path]:
    """Return the paths in all references such as `${file:/path}` in the text of a configuration, including its
    comments."""
    expressions = (found[1] or "" for found in _REFERENCE.finditer(text))
    return frozenset(Path(each.removeprefix("file:")) for each in expressions if each.startswith("file:"))


def interpolate(text: str, environ: Mapping[str, str]) -> str:
    """Return `text` with its references replaced, as a Referenced if `text` contains references.

    Raises:
        ValueError: a variable is not set and has no default, a file is unreadable, or a reference is malformed.
    """
    if "${" not in text:
        return text
    replaced = _REFERENCE.sub(lambda found: _value(found, environ), text)
    if all(found[0] == "$${" for found in _REFERENCE.finditer(text)):
        return replaced
    result = Referenced(replaced)
    result.source = text
    result.alone = _REFERENCE.fullmatch(text) is not None
    return result


def _value(found: re.Match[str], environ: Mapping[str, str]) -> str:
    if found[0] == "$${":
        return "${"
    if found[1] is None:
        raise ValueError("'${' without '}'; write '$${' for the characters '${'")
    if found[1].startswith("file:"):
        return _file(Path(found[1].removeprefix("file:")))
    return _variable(found[1], environ)


def _variable(expression: str, environ: Mapping[str, str]) -> str:
    parsed = _VARIABLE.fullmatch(expression)
    if parsed is None:
        raise ValueError(
            f"'${{{expression}}}' is not a reference; expected ${{NAME}}, ${{NAME:-default}} or ${{file:/path}}"
        )
    name, default = parsed.groups()
    # Like in a shell, `:-` also replaces an empty variable.
    value = environ.get(name) if default is None else environ.get(name) or default
    if value is None:
        raise ValueError(f"the environment variable {name} is not set; ${{{name}:-default}} gives it a default")
    return value


def _file(path: Path) -> str:
    if not path.is_absolute():
        raise ValueError(f"${{file:{path}}} needs an absolute path")
    try:
        return _text(path)
    except UnicodeDecodeError as error:
        raise ValueError(f"the file {path} is not UTF-8; use a file that has only the value, as text") from error
    except OSError as error:
        raise ValueError(
            f"cannot read the file {path}: {error.strerror}; check the path and its permissions"
        ) from error


def _text(path: Path) -> str:
    # Opening a named pipe would wait for its writer.
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a regular file")
    with path.open("rb") as file:
        content = file.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise ValueError(f"the file {path} is larger than {MAX_FILE} bytes; use a file that has only the value")
    if not content.strip():
        raise ValueError(f"the file {path} is empty; write the value into it")
    return content.decode().removesuffix("\n").removesuffix("\r")
