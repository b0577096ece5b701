"""Conformance checks: test a model server against the specification of its protocol. For authors of servers.

One file per wire form has its checks. Messages are made without the gateway's codecs: a codec that is tested against
itself agrees with its own mistakes.
"""

from importlib import import_module
from typing import Any

from gateway.cli.conformance.check import Suite

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
"""The module with the checks of each wire form."""
PACKAGES = ("grpc", "flatbuffers")
"""What the extra `conformance` installs."""


class MissingPackageError(Exception):
    """The checks of a wire form need a package of the extra `conformance`."""


def suite(protocol: str) -> Suite[Any]:
    """The checks of a wire form.

    Raises:
        KeyError: there is no such wire form.
        MissingPackageError: its checks need a package that is not installed.
    """
    try:
        found: Suite[Any] = import_module(f"gateway.cli.conformance.{MODULES[protocol]}").SUITE
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        needed = f"the checks of {protocol} need the package {error.name!r}"
        raise MissingPackageError(f"{needed}; install 'modelglot[conformance]'") from None
    return found
