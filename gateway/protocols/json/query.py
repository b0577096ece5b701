"""Tensors in the query of requests: `GET /predict?length=5.1&width=3.5`.

The format of a query is a web form (`media.web_forms`). Tensors with a place in the query go there; all other tensors
go to the body.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import unquote_plus

from gateway.core.errors import DecodeError
from gateway.core.frozen import replace_struct
from gateway.core.protocol import Limits
from gateway.core.types import NO_HEADERS, Tensor, TensorSpec
from gateway.protocols.json.arrangement import Arrangement
from gateway.protocols.json.bodies import FormData
from gateway.protocols.json.media import web_forms
from gateway.protocols.json.misfit import MisfitError
from gateway.protocols.json.templates import Member, Node, Object
from gateway.protocols.json.writing import MessageContents


class QueryTensors:
    """The tensors in the queries of an exchange. `members` are their parameters, `bodies` the templates of the body."""

    def __init__(self, members: tuple[Member, ...], bodies: Sequence[Node], specs: Mapping[str, TensorSpec]) -> None:
        node = Object(members)
        self.nodes: tuple[Node, ...] = (node,)
        self._keys = frozenset(each.key for each in members)
        self._fields = FormData(node, specs, "input", web_forms, ignore_unknown=True)
        # one of several bodies can lack tensors that another has
        inner = [Member(str(at), each, len(bodies) > 1) for at, each in enumerate(bodies)]
        self._arrangement = Arrangement(Object((Member("", node), *inner)), "input", declared=bool(specs))
        self._names = Arrangement(node, "input", declared=bool(specs)).places

    def read(self, query: str, limits: Limits) -> tuple[Tensor, ...]:
        """Return the tensors in a query. Other parameters can be there, also more than once.

        Raises:
            DecodeError: a tensor is missing, or does not match the form.
            GatewayError: RESOURCE_EXHAUSTED, beyond a limit.
        """
        try:
            own = "&".join(each for each in query.split("&") if unquote_plus(each.partition("=")[0]) in self._keys)
            found = self._fields.read(own.encode("utf-8", "replace"), NO_HEADERS, limits)
            if found.unequal is not None:
                raise DecodeError(found.unequal.error)
            return found.tensors
        except MisfitError as error:
            raise MisfitError(f"the query: {error}", error.place) from error
        except DecodeError as error:
            raise DecodeError(f"the query: {error}") from error

    def write(self, said: MessageContents) -> tuple[str, tuple[Tensor, ...]]:
        """Return the query with the tensors that have a place in it, and the tensors of the body.

        Raises:
            GatewayError: INVALID_ARGUMENT, naming a tensor without a place, or a place without a tensor.
        """
        placed = {
            name: tensor if tensor.name == name else replace_struct(tensor, name=name)
            for name, tensor in self._arrangement.arrange(said.tensors).items()
        }
        own = tuple(tensor for name, tensor in placed.items() if name in self._names)
        parts = self._fields.write(MessageContents(said.nan, said.translate, own))
        others = tuple(tensor for name, tensor in placed.items() if name not in self._names)
        return b"".join(map(bytes, parts)).decode(), others
