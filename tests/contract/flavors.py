"""What is tested: every protocol, in each way in which it is spoken to servers that speak it as ours do."""

from collections.abc import Iterator

from gateway.assembly.server_info import INFO
from gateway.core.errors import GatewayError, Reason
from gateway.core.exchange import decoded
from gateway.core.frozen import frozen, replace
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, Target, Traits
from gateway.core.types import Answer, Request, ServerInfo
from tests.contract.installed import PROTOCOLS
from tests.contract.wire import LISTENER, LITERAL, arrived, or_error, returned


@frozen
class Dialect:
    """A protocol, as it is spoken to one flavor of its servers. `name` is what test ids call it."""

    name: str
    protocol: Protocol
    flavor: str = ""

    @property
    def tells_names(self) -> bool:
        """Whether metadata names the inputs and outputs, even if the tensors of calls are `unnamed`."""
        return self.protocol.name != "umbridge"

    @property
    def traits(self) -> Traits:
        """Those of the protocol, as far as this flavor has them: not every V2 server streams over REST."""
        traits = self.protocol.traits
        return (
            traits
            if not traits.wire.streams or self._streams()
            else replace(traits, wire=replace(traits.wire, streams=False))
        )

    def _streams(self) -> bool:
        asked = or_error(lambda: self.protocol.encode_request(Request(Operation.STREAM, "m"), self.target))
        return not (isinstance(asked, GatewayError) and asked.reason is Reason.UNSUPPORTED)

    @property
    def target(self) -> Target:
        """A server of this flavor, with every extension that there is."""
        extensions = frozenset(self.protocol.traits.servers.extensions.values())
        return Target("contract", "127.0.0.1:1", self.flavor, extensions=extensions)

    def asked(self, request: Request) -> Request:
        """What the server understands of `request`."""
        message = self.protocol.encode_request(request, self.target)
        return decoded(arrived(message, self.protocol), self.protocol, LISTENER)

    def answered(self, answer: Answer, question: Request, request: Request) -> Answer:
        """What the client understands of `answer`, which the server gives to `question`, its reading of `request`."""
        reply = self.protocol.encode_response(answer, question, LITERAL)
        return self.protocol.decode_response(returned(reply, self.protocol), request, self.target)


def names_models(traits: Traits) -> bool:
    """Whether a call can name a model: a server has several, and a listener leads to all."""
    return traits.models.named or traits.models.may_be_named


def dialects(protocol: Protocol) -> Iterator[Dialect]:
    """How a server of ours is spoken to, and one that tells nothing of itself."""
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
