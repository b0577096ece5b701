"""The addresses that all workers share. The supervisor reserves each TCP address, and all workers bind it with
SO_REUSEPORT."""

import socket

from gateway.assembly.listening import binding
from gateway.config.keys import Config
from gateway.core.address import Address
from gateway.core.frozen import replace


class Addresses:
    """The addresses of a configuration's listeners and sample servers.

    To reserve an address, the supervisor binds a socket that does not listen, and thus receives no connections. If the
    configuration has port 0, the socket determines the port. The socket also keeps the address while no worker is
    running. With SO_REUSEPORT alone, a second gateway could bind the same addresses and take half of the connections.
    Therefore, the supervisor first binds the address without SO_REUSEPORT, which fails if another process uses the
    address."""

    def __init__(self) -> None:
        self._reserved: dict[tuple[Address, str], tuple[Address, list[socket.socket]]] = {}
        """The reserved sockets, by configured address.

        With port 0, the key also contains the owner of the address, so each owner keeps its own port."""

    def shared(self, config: Config) -> Config:
        """Return `config` for workers, after reserving all addresses and replacing each port 0 with the reserved port.

        Raises:
            BindError: an address cannot be bound.
        """
        listeners = tuple(
            each.model_copy(update={"bind": self._reserve(each.bind, f"listener {each.name!r}")})
            for each in config.listeners
        )
        references = tuple(
            one.model_copy(update={"bind": self._reserve(one.bind, f"reference {one.protocol!r}")})
            for one in config.reference
        )
        return config.model_copy(update={"listeners": listeners, "reference": references})

    def release_unused(self, config: Config) -> None:
        """Release the addresses that are not in `config`, a configuration for workers."""
        used = {each.bind for each in config.listeners} | {each.bind for each in config.reference}
        for key, (bound, sockets) in list(self._reserved.items()):
            if bound not in used:
                del self._reserved[key]
                for each in sockets:
                    each.close()

    def release(self) -> None:
        """Release all addresses."""
        for _, sockets in self._reserved.values():
            for each in sockets:
                each.close()
        self._reserved.clear()

    def _reserve(self, address: Address, what: str) -> Address:
        if address.path or address.shared:
            return address
        key = address, "" if address.port else what
        if key not in self._reserved:
            with binding(what, address):
                self._reserved[key] = _reserved(address)
        return self._reserved[key][0]


def _reserved(address: Address) -> tuple[Address, list[socket.socket]]:
    sockets: list[socket.socket] = []
    port = address.port
    try:
        found = socket.getaddrinfo(address.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, (host, *_) in dict.fromkeys(found):
            if port:
                _socket(family, str(host), port).close()
            sockets.append(_socket(family, str(host), port, reuse=True))
            port = sockets[-1].getsockname()[1]
    except BaseException:
        for each in sockets:
            each.close()
        raise
    return replace(address, port=port, shared=True), sockets


def _socket(family: int, host: str, port: int, *, reuse: bool = False) -> socket.socket:
    """Return a socket bound to this address."""
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((host, port))
        if reuse:
            # The option is only for connections of a previous gateway. It would let other programs bind the address.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except BaseException:
        made.close()
        raise
    return made
