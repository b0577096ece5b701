"""Assigns the tensors of a message to the placeholders of a template, for `bodies` and `heads`.

- If the form declares its tensors, they are assigned by name. A tensor without a placeholder is an error. Tensors that
arrived without names, which the gateway calls `output0`, `output1` and so on, are assigned by position.
- If the template contains `$*`, all tensors are assigned to it. A tensor without a name is called `input0`, `output0`
and so on.
- Otherwise, the tensors are assigned by name if every tensor has the name of a placeholder. If not, they are assigned
by position, because the message contains no names.
"""

from collections.abc import Mapping, Sequence

from gateway.core.errors import invalid_input
from gateway.core.tensors import Tensor
from gateway.protocols.json.templates import Every, Node, Object, TensorPlace, children, walk


class Arrangement:
    """The placeholders for tensors in one template.

    `role` is the word for its tensors in error messages, `input` or `output`. `places` are the names of the tensors
    that have a placeholder."""

    def __init__(self, node: Node, role: str, *, declared: bool) -> None:
        self._role = role
        self._declared = declared
        nodes = list(walk(node))
        self.places = tuple(dict.fromkeys(each.name for each in nodes if isinstance(each, TensorPlace)))
        self._has_every = any(isinstance(each, Every) or (isinstance(each, Object) and each.every) for each in nodes)
        self._required = frozenset(required_tensors(node))

    def arrange(self, tensors: Sequence[Tensor]) -> Mapping[str, Tensor]:
        """Return a map to the tensors from the names of their placeholders, or from their own names if the template
        contains `$*`.

        Raises:
            GatewayError: INVALID_ARGUMENT if a tensor has no placeholder, or a placeholder has no tensor. The message
                says which.
        """
        if self._has_every:
            return self._by_name(tensors)
        places, role = self.places, self._role
        if len(tensors) == 1 and len(places) == 1 and (not self._declared or tensors[0].name == places[0]):
            return {places[0]: tensors[0]}
        names = {tensor.name for tensor in tensors}
        if (self._declared and not self._are_nameless(tensors)) or (
            len(names) == len(tensors) and names.issubset(places)
        ):
            self._check_names(tensors)
            placed = self._by_name(tensors)
        elif len(tensors) > len(places):
            raise invalid_input(f"{len(tensors)} {role}s, but the form has places for {len(places)}")
        else:
            placed = dict(zip(places, tensors, strict=False))
        for name in self._required:
            if name not in placed:
                raise invalid_input(f"{role} {name!r} is missing, which the form requires")
        return placed

    def _are_nameless(self, tensors: Sequence[Tensor]) -> bool:
        return all(tensor.name in ("", f"{self._role}{at}") for at, tensor in enumerate(tensors))

    def _check_names(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            if tensor.name not in self.places:
                known = ", ".join(map(repr, self.places)) or "none"
                raise invalid_input(f"{self._role} {tensor.name!r} has no place in the form, which has {known}")

    def _by_name(self, tensors: Sequence[Tensor]) -> Mapping[str, Tensor]:
        found: dict[str, Tensor] = {}
        for at, tensor in enumerate(tensors):
            name = tensor.name or f"{self._role}{at}"
            if name in found:
                raise invalid_input(f"{self._role} {name!r} is there twice")
            found[name] = tensor
        return found


def required_tensors(node: Node) -> set[str]:
    """Return the names of the tensors that every body of the template contains."""
    if isinstance(node, TensorPlace):
        return {node.name}
    if isinstance(node, Object):
        return {name for each in node.members if not each.optional for name in required_tensors(each.node)}
    return {name for child in children(node) for name in required_tensors(child)}
