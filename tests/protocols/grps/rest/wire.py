"""Messages of grps-rest as its transport hands them over, and the values around them."""

from gateway.core.datatypes import Datatype
from gateway.core.frozen import replace
from gateway.core.messages import Buffer, Headers, Message
from gateway.core.patterns import Match, PathTable
from gateway.core.protocol import ListenerSettings, Target
from gateway.protocols.grps import GRPS_REST
from tests.protocols.grps.values import numbers

LISTENER = ListenerSettings("http")
TARGET = Target("grps", "127.0.0.1:1")
JSON = "application/json"
OCTETS = "application/octet-stream"
PREDICT = "/grps/v1/infer/predict"
OK_STATUS = b'{"code":200,"msg":"OK","status":"SUCCESS"}'
X = numbers("x", Datatype.FP32, 1, 2)
X_JSON = b'{"gtensors":{"tensors":[{"name":"x","dtype":"DT_FLOAT32","shape":[2],"flat_float32":[1.0,2.0]}]}}'

TABLE = PathTable([(GRPS_REST, "")])


def typed(content_type: str) -> Headers:
    """The headers of a body of this type; of none if it is empty."""
    return Headers(((b"content-type", content_type.encode()),) if content_type else ())


def call(body: Buffer = b"", content_type: str = JSON, query: str = "", path: str = PREDICT) -> Message:
    """A client's POST."""
    match = TABLE.match("POST", path)
    pattern = match.pattern if isinstance(match, Match) else f"POST {path}"
    return Message("POST", path, typed(content_type), (body,), query=query, pattern=pattern, peer="192.0.2.1:4242")


def with_header(message: Message, name: str, value: str) -> Message:
    return replace(message, headers=Headers((*message.headers.raw, (name.encode(), value.encode()))))


def reply(body: Buffer, content_type: str = JSON, status: int = 200) -> Message:
    """A server's reply."""
    return Message(headers=typed(content_type), parts=(body,), status=status)
