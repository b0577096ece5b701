"""The protocols under test, each in every variant for a server type that the sample servers support."""

from collections.abc import Iterator

from gateway.assembly.server_info import INFO
from gateway.core.errors import GatewayError, Reason
from gateway.core.exchange import decoded
from gateway.core.frozen import frozen, replace
from gateway.core.models import ServerInfo
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, Target, Traits
from gateway.core.requests import Answer, Request
from tests.contract.installed import PROTOCOLS
from tests.contract.wire import LISTENER, LITERAL, arrived, or_error, returned


@frozen
class Dialect:
    """A protocol in the variant for one server type. `name` is its name in test ids."""

    name: str
    protocol: Protocol
    flavor: str = ""

    @property
    def tells_names(self) -> bool:
        """Return whether metadata contains the names of inputs and outputs, even if the tensors in calls are
        `unnamed`."""
        return self.protocol.name != "umbridge"

    @property
    def traits(self) -> Traits:
        """Return the Traits of the protocol, as far as this server type supports them. Not every V2 server streams over
        REST."""
        traits = self.protocol.traits
        if not traits.wire.streams or self._streams():
            return traits
        return replace(traits, wire=replace(traits.wire, streams=False))

    def _streams(self) -> bool:
        asked = or_error(lambda: self.protocol.encode_request(Request(Operation.STREAM, "m"), self.target))
        return not (isinstance(asked, GatewayError) and asked.reason is Reason.UNSUPPORTED)

    @property
    def target(self) -> Target:
        """A server of this type, with all extensions."""
        extensions = frozenset(self.protocol.traits.servers.extensions.values())
        return Target("contract", "127.0.0.1:1", self.flavor, extensions=extensions)

    def asked(self, request: Request) -> Request:
        """Return the request that the server reads after the client has written `request`."""
        message = self.protocol.encode_request(request, self.target)
        return decoded(arrived(message, self.protocol), self.protocol, LISTENER)

    def answered(self, answer: Answer, question: Request, request: Request) -> Answer:
        """Return the answer that the client reads after the server has written `answer` to `question`, its reading of
        `request`."""
        reply = self.protocol.encode_response(answer, question, LITERAL)
        return self.protocol.decode_response(returned(reply, self.protocol), request, self.target)


def names_models(traits: Traits) -> bool:
    """Return whether a call can select a model. If so, a server has several models, and one listener serves all."""
    return traits.models.named or traits.models.may_be_named


def dialects(protocol: Protocol) -> Iterator[Dialect]:
    """Return the dialect for the sample server of a protocol, and the dialect for a server that reports nothing about
    itself."""
    plain = Dialect(protocol.name, protocol)
    flavors = protocol.traits.servers.flavors
    if flavors is None:
        yield plain
        return
    request = Request(Operation.SERVER_METADATA)
    info = plain.answered(INFO, plain.asked(request), request)
    assert isinstance(info, ServerInfo)
    ours, unknown = flavors.detect(info), flavors.detect(None)
    yield Dialect(protocol.name, protocol, ours)
    if unknown != ours:
        yield Dialect(f"{protocol.name}-{unknown}", protocol, unknown)


DIALECTS = {dialect.name: dialect for protocol in PROTOCOLS.values() for dialect in dialects(protocol)}
