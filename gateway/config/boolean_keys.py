"""Warnings about keys that are the text `true` or `false`. Tensors and models rarely have these names, but programs
that read YAML 1.1, such as Helm, turn a key `y` or `n` into a boolean, and write the boolean as this text.
"""

from collections.abc import Iterator

from gateway.config.document import Location, Node
from gateway.config.problems import Finding
from gateway.config.scalars import other_words

_WRITTEN = {"true": "y", "false": "n"}


def boolean_keys(node: Node, above: Location = ()) -> Iterator[Finding]:
    """Yield a finding for each key `true` or `false` in a document."""
    match node.value:
        case dict(items):
            for key, child in items.items():
                if key in _WRITTEN:
                    quoted = f'quote the original key, such as "{_WRITTEN[key]}"'
                    text = f"the key {key!r} is probably another word: {other_words(key == 'true')}; {quoted}"
                    yield Finding((*above, key), text, at_key=True)
                yield from boolean_keys(child, (*above, key))
        case list(items):
            for at, child in enumerate(items):
                yield from boolean_keys(child, (*above, at))
