"""Conformance checks, with which server developers test a model server against its protocol's specification.

Each protocol's checks are in a file of their own. The checks build messages without the gateway's codecs, because a
codec tested against itself agrees with its own mistakes.
"""

from importlib import import_module
from typing import Any

from gateway.tools.conformance.check import Suite

MODULES = {
    "umbridge": "umbridge",
    "graphpipe": "graphpipe",
    "mip": "mip",
    "v1-rest": "v1_rest",
    "v2-rest": "v2_rest",
    "v2-grpc": "v2_grpc",
    "tfs-grpc": "tfs_grpc",
    "grps-rest": "grps_rest",
    "grps-grpc": "grps_grpc",
    "grps-brpc": "grps_brpc",
}
"""The module with the checks of each protocol."""
PACKAGES = ("grpc", "flatbuffers")
"""The packages installed by the extra `conformance`."""


class MissingPackageError(Exception):
    """A protocol's checks require a package of the extra `conformance`."""


def suite(protocol: str) -> Suite[Any]:
    """Return the checks of a protocol.

    Raises:
        KeyError: the protocol is unknown. MissingPackageError: the protocol's checks require a package that is not
        installed.
    """
    try:
        found: Suite[Any] = import_module(f"gateway.tools.conformance.{MODULES[protocol]}").SUITE
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        needed = f"the checks of {protocol} need the package {error.name!r}"
        raise MissingPackageError(f"{needed}; install 'modelglot[conformance]'") from None
    return found
