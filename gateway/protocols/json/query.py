"""Tensors and JSON objects in the query of requests: `GET /predict?length=5.1`, `GET /predict?json={"data": ..}`.

`compiled` creates a QueryDocuments, `server` reads with it, and `client` writes with it. A query is a web form
(`media.web_forms`). Values with a placeholder in the query go there; all other values go to the body.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import unquote_plus

from gateway.core.errors import DecodeError
from gateway.core.frozen import replace_struct
from gateway.core.messages import NO_HEADERS
from gateway.core.models import TensorSpec
from gateway.core.protocol import Limits
from gateway.core.tensors import Tensor
from gateway.protocols.json.arrangement import Arrangement
from gateway.protocols.json.bodies import FormData
from gateway.protocols.json.media import web_forms
from gateway.protocols.json.misfit import MisfitError
from gateway.protocols.json.places import BodyContents
from gateway.protocols.json.templates import (
    Every,
    Member,
    Node,
    Object,
    ParameterPlace,
    ParametersPlace,
    TensorPlace,
    walk,
    walk_all,
)
from gateway.protocols.json.writing import MessageContents


class QueryDocuments:
    """Reads and writes the query parameters of an exchange that are tensors or JSON objects.

    `members` are the templates of these query parameters, `bodies` the templates of the request body. `specs` are the
    tensors that the form declares."""

    def __init__(
        self,
        members: tuple[Member, ...],
        bodies: Sequence[Node],
        specs: Mapping[str, TensorSpec],
        *,
        ignore_unknown: bool,
    ) -> None:
        node = Object(members)
        self.nodes: tuple[Node, ...] = (node,)
        self._keys = frozenset(each.key for each in members)
        self._fields = FormData(node, specs, "input", web_forms, ignore_unknown=ignore_unknown)
        # Assign tensors to the query and the bodies together, so that a tensor with a placeholder in either is
        # accepted. The tensors of several bodies are optional, because one body can lack tensors of another.
        inner = [Member(str(at), each, len(bodies) > 1) for at, each in enumerate(bodies)]
        self._arrangement = Arrangement(Object((Member("", node), *inner)), "input", declared=bool(specs))
        self._names = None if not have_tensors(bodies) else frozenset(Arrangement(node, "input", declared=True).places)
        """The names of the tensors in the query; None if the bodies contain no tensors, so all tensors go there."""
        self._in_query = _own_parameters((node,))
        """The parameters that have their own placeholder in the query."""
        self._only_in_bodies = _own_parameters(bodies) - self._in_query
        self._has_parameters = any(isinstance(each, ParametersPlace) for each in walk(node))

    def read(self, query: str, limits: Limits) -> BodyContents:
        """Return the tensors and the other contents of these query parameters.

        The query can also contain other parameters, even several with the same name.

        Raises:
            DecodeError: a query parameter is missing, or does not match its template.
            GatewayError: RESOURCE_EXHAUSTED if a limit is exceeded.
        """
        try:
            own = "&".join(each for each in query.split("&") if unquote_plus(each.partition("=")[0]) in self._keys)
            found = self._fields.read(own.encode("utf-8", "replace"), NO_HEADERS, limits)
            if found.unequal is not None:
                raise DecodeError(found.unequal.error)
            return found
        except MisfitError as error:
            raise MisfitError(f"the query: {error}", error.place) from error
        except DecodeError as error:
            raise DecodeError(f"the query: {error}") from error

    def write(self, said: MessageContents) -> tuple[str, tuple[Tensor, ...]]:
        """Return the query with all contents that have a placeholder in it. Also return the tensors of the body.

        Raises:
            GatewayError: INVALID_ARGUMENT for a tensor without a placeholder, or a placeholder without a tensor. The
                message says which.
        """
        placed = {
            name: tensor if tensor.name == name else replace_struct(tensor, name=name)
            for name, tensor in self._arrangement.arrange(said.tensors).items()
        }
        names = placed.keys() if self._names is None else self._names
        own = tuple(tensor for name, tensor in placed.items() if name in names)
        # `$params` in the query leaves out parameters that have a placeholder elsewhere. Without `$params`, the query
        # refuses no parameter, because the body checks them.
        outside_query = (said.elsewhere - self._in_query) | self._only_in_bodies
        elsewhere = outside_query if self._has_parameters else frozenset(said.parameters)
        parts = self._fields.write(replace_struct(said, tensors=own, elsewhere=elsewhere))
        others = tuple(tensor for name, tensor in placed.items() if name not in names)
        return b"".join(map(bytes, parts)).decode(), others


def _own_parameters(nodes: Sequence[Node]) -> frozenset[str]:
    return frozenset(each.name for each in walk_all(nodes) if isinstance(each, ParameterPlace))


def have_tensors(nodes: Sequence[Node]) -> bool:
    """Return True if one of the templates contains a placeholder for a tensor."""
    return any(
        isinstance(each, TensorPlace | Every) or (isinstance(each, Object) and each.every) for each in walk_all(nodes)
    )
