"""Makes text from servers, such as model names, safe to print, because such text must not move the cursor, change
colors or change the direction of writing (with Unicode's bidirectional controls)."""

import json
import re

import orjson

_ODD = re.compile(r"[^\n\x20-\x7e]")


def printable(text: str) -> str:
    """Return `text` on one line, with `?` instead of non-printable characters."""
    return "".join(each if each.isprintable() else "?" for each in text)


def printable_lines(text: str) -> str:
    """Return `text` with its line breaks, and with `?` instead of non-printable characters."""
    return "\n".join(map(printable, text.split("\n")))


def indented_json(value: object) -> str:
    """Return `value` as indented JSON, with non-printable characters escaped."""
    written = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return _ODD.sub(lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], written)


def in_yaml(text: str) -> str:
    """Return `text` as a double-quoted YAML string, with non-printable characters escaped."""
    written = orjson.dumps(text).decode()
    return _ODD.sub(lambda found: found[0] if found[0].isprintable() else _in_yaml(found[0]), written)


def _in_yaml(character: str) -> str:
    return f"\\U{ord(character):08x}"
