"""The authenticated client and its permissions. `auth` creates Principals."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from posixpath import normpath
from typing import Literal, TypeAlias, get_args

from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.frozen import frozen
from gateway.core.operations import CALLS, CONTROL_OPERATIONS, SERVER_OPERATIONS, Operation

Permission: TypeAlias = Literal["infer", "metadata", "control", "offline", "explain", "admin", "details", "metrics"]
"""The permissions of principals.

`infer`: Run models. `metadata`: Read model and server metadata. `control`: Load models and change server settings.
`offline`: Take a listener offline and online. `explain`: Request explanations of responses. `admin`: Use the status
API. `details`: See backend names and addresses in errors. `metrics`: Read the metrics page on a health port with
authentication."""

PERMISSIONS: tuple[Permission, ...] = get_args(Permission)

_NEEDED: dict[Operation, Permission] = {
    **dict.fromkeys(Operation, "metadata"),
    **dict.fromkeys(CALLS, "infer"),
    **dict.fromkeys(CONTROL_OPERATIONS, "control"),
    Operation.ONLINE: "offline",
    Operation.OFFLINE: "offline",
}
"""The permission that each operation requires."""

_FREE = frozenset({Operation.LIVE, Operation.READY, Operation.SERVER_METADATA})
"""Operations that require no permission."""

_OF_ANY_MODEL = SERVER_OPERATIONS - {Operation.ONLINE, Operation.OFFLINE}
"""Operations without a model for which a permission for at least one model is sufficient, because lists omit all other
models."""

_MOST_REMEMBERED = 4096
"""Maximum number of cached decisions for each principal.

The limit is necessary because clients choose the model names."""


@frozen
class Grant:
    """Grants permissions for models on listeners. Globs select the models and listeners."""

    permissions: frozenset[Permission]
    models: tuple[str, ...] = ("*",)
    listeners: tuple[str, ...] = ("*",)

    def covers(self, permission: Permission, model: str, listener: str) -> bool:
        """Return whether the grant includes the permission for the model on the listener."""
        return permission in self.permissions and _matches(self.models, model) and _matches(self.listeners, listener)


EVERYTHING = Grant(frozenset(PERMISSIONS))
"""Grants all permissions for all models on all listeners."""


def _matches(globs: Iterable[str], name: str) -> bool:
    """Return whether a glob matches both `name` and the name that a server obtains if it reads `name` as a path and
    resolves its dots. For example, `open*` does not match `open/../secret`."""
    resolved = normpath(name.replace("\\", "/")) if ".." in name else name
    return any(fnmatchcase(name, glob) and fnmatchcase(resolved, glob) for glob in globs)


class Principal:
    """An authenticated identity (a person or a program) with its permissions."""

    __slots__ = ("_decisions", "_unrestricted", "grants", "name")

    def __init__(self, name: str, grants: Iterable[Grant] = ()) -> None:
        self.name = name
        self.grants = tuple(grants)
        self._decisions: dict[tuple[Operation, str, str], bool] = {}
        self._unrestricted: Principal | None = None

    @property
    def unrestricted(self) -> "Principal":
        """A principal with the same name and all permissions.

        After the gateway has permitted a request of the principal, it uses this object for its own calls that the
        request causes. The object is always the same."""
        if self.grants == (EVERYTHING,):
            return self
        if self._unrestricted is None:
            self._unrestricted = Principal(self.name, (EVERYTHING,))
        return self._unrestricted

    def __repr__(self) -> str:
        return f"Principal({self.name!r})"

    def has(self, permission: Permission, model: str, listener: str) -> bool:
        """Return whether the principal has a permission for a model on a listener. `model` is the name that clients
        use."""
        return any(grant.covers(permission, model, listener) for grant in self.grants)

    def may(self, operation: Operation, model: str, listener: str) -> bool:
        """Return whether the principal may request an operation on a model on a listener. `model` is the name that
        clients use. An operation without a model requires a permission for all models (`*`), unless it only lists
        models."""
        key = operation, model, listener
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decides(*key)
            if len(self._decisions) >= _MOST_REMEMBERED:
                self._decisions.clear()
            self._decisions[key] = decision
        return decision

    def _decides(self, operation: Operation, model: str, listener: str) -> bool:
        if operation in _FREE:
            return True
        needed = _NEEDED[operation]
        if operation in _OF_ANY_MODEL:
            return any(needed in grant.permissions and _matches(grant.listeners, listener) for grant in self.grants)
        return self.has(needed, model, listener)

    def refused(self, operation: Operation, model: str, listener: str) -> GatewayError:
        """Return the error for a missing permission. The error does not reveal whether the model exists."""
        about = f" on model {model[:100]!r}" if model else ""
        return refusal(Reason.PERMISSION_DENIED, f"{self.name!r} does not have the permission {operation.value}{about}")
