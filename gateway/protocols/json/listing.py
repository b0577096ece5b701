"""Bodies that list models, for a form's model list.

The names are values, as in `[{id: $model}, ...]`, or the keys of an object, as in `{"/$model": $model}`, the format of
Ray Serve's route prefixes.
"""

from gateway.core import bytes_elements, json
from gateway.core.datatypes import BYTES
from gateway.core.messages import Buffer, Headers
from gateway.core.models import TensorSpec
from gateway.core.protocol import Limits
from gateway.core.tensors import Tensor
from gateway.protocols.json.bodies import MessageBody, make_body
from gateway.protocols.json.form import ABSENT, JSON_TYPE, FormError, ModelListing
from gateway.protocols.json.places import BodyContents
from gateway.protocols.json.templates import Role, Word
from gateway.protocols.json.writing import MessageContents

_LISTED = {name: TensorSpec(name, BYTES, (-1,)) for name in ("model", "version")}
"""The model list is read and written like two tensors, one of names and one of versions."""
_PLACE = ("models", "response")


def listing_body(models: ModelListing | None) -> MessageBody:
    """Return the bodies of a form's model list. Raises FormError if a template cannot be used."""
    if models is None:
        return make_body(ABSENT, JSON_TYPE, Role.LISTING, _PLACE, _LISTED, ignore_unknown=False)
    template = models.response
    keys = [each for each in template if _is_name(each)] if isinstance(template, dict) else []
    if not keys:
        return make_body(template, JSON_TYPE, Role.LISTING, _PLACE, _LISTED, ignore_unknown=models.ignore_unknown)
    if template != {keys[0]: Word.MODEL.value}:
        raise FormError((*_PLACE, keys[0]), f"where names are keys, write only them: `{{{keys[0]}: $model}}`")
    return NamesAsKeys(keys[0].removesuffix(Word.MODEL.value))


def _is_name(key: object) -> bool:
    return isinstance(key, str) and key.endswith(Word.MODEL.value) and not key.startswith("$$")


class NamesAsKeys(MessageBody):
    """Bodies that are an object whose keys are model names after `prefix`.

    Reading ignores the values, and keys without the prefix. Writing uses the model's name as each value."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def read(self, body: Buffer, headers: Headers, limits: Limits) -> BodyContents:
        found = json.read(body, {}, values=limits.json_values, literals=False)
        names = [each.removeprefix(self._prefix) for each in found if each.startswith(self._prefix)]
        return BodyContents((_names([name for name in names if name]),))

    def write(self, said: MessageContents) -> tuple[Buffer, ...]:
        named = {each.name: each for each in said.tensors}
        names = [each.decode() for each in bytes_elements.unpack(named["model"].data)]
        return (json.write({f"{self._prefix}{name}": name for name in names}),)


def _names(names: list[str]) -> Tensor:
    return Tensor("model", BYTES, (len(names),), bytes_elements.pack([each.encode() for each in names]))
