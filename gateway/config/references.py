"""References in scalars: `${ENV}`, `${ENV:-default}` and `${file:/path}`; `$${` is an escape for `${`.

The value of a reference is plain text: it is not parsed as YAML, and references in it are not replaced. The value can
be a secret, so messages show the reference instead.
"""

import re
from collections.abc import Mapping
from pathlib import Path

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
        raise ValueError(f"the file {path} is not UTF-8") from error
    except OSError as error:
        raise ValueError(f"cannot read the file {path}: {error.strerror}") from error


def _text(path: Path) -> str:
    # Opening a named pipe would wait for its writer.
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a regular file")
    with path.open("rb") as file:
        content = file.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise ValueError(f"the file {path} is larger than {MAX_FILE} bytes")
    if not content.strip():
        raise ValueError(f"the file {path} is empty")
    return content.decode().removesuffix("\n").removesuffix("\r")
