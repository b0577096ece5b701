"""YAML of servers, read with bounds: every scalar stays the text that it is (`1.0` is a version, and no number)."""

from typing import Any

import yaml

from gateway.core.errors import DecodeError

MAX_SIZE = 64 * 1024
"""Characters. The configurations of real servers have a few thousand; PyYAML reads 100 a millisecond."""
MAX_DEPTH = 16


class _Loader(yaml.BaseLoader):
    """Without aliases, by which a few lines become a tree of gigabytes, and nested no deeper than MAX_DEPTH."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise DecodeError("metadata holds a YAML alias")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise DecodeError(f"metadata is nested deeper than {MAX_DEPTH}")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read_mapping(text: str) -> dict[str, Any]:
    """The mapping in `text`; its values are texts, lists and mappings.

    Raises:
        DecodeError: too long, not YAML, an alias in it, nested too deep, or something else than a mapping.
    """
    if len(text) > MAX_SIZE:
        raise DecodeError(f"metadata of {len(text)} characters, expected at most {MAX_SIZE}")
    try:
        document = yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise DecodeError(f"metadata is no YAML: {str(error)[:200]}") from error
    if not isinstance(document, dict):
        raise DecodeError("metadata is no mapping in YAML")
    return document
