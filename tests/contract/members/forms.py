"""Writes messages of each protocol from plain values, without the gateway's codecs: with JSON, Google's protobuf, the
flatbuffers package, and bytes for MIP.

The values of an HTTP message are `body`, `query`, `headers`, and `path` if it is not the usual path. A gRPC message has
a `body`; a brpc frame has `body`, `meta` and `attachment`; a MIP packet has its numbers and `tlvs`.
"""

import base64
import json
from collections.abc import Mapping
from struct import pack
from typing import Any, TypeAlias
from urllib.parse import urlencode

from flatbuffers import Builder
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass

from gateway.core.messages import Headers, Message
from tests.contract.members.schemas import CODE, FOLDERS, PROTOS, types

Values: TypeAlias = Mapping[str, Any]


MODEL = "m"
PATHS = {
    "v2-rest": f"/v2/models/{MODEL}/infer",
    "v1-rest": f"/v1/models/{MODEL}:predict",
    "umbridge": "/Evaluate",
    "grps-rest": "/grps/v1/infer/predict",
    "graphpipe": f"/graphpipe/{MODEL}",
}
"""The inference path of each HTTP protocol."""


def written(form: str, values: Values, kind: str) -> Message:
    """Return a message of a protocol. `kind` is `request` or `reply`."""
    if form in _CALLS:
        return _grpc(form, values, kind)
    if form == "grps-brpc":
        return _frame(values, kind)
    if form == "mip":
        return _packet(values)
    content, coded = (
        (b"application/octet-stream", _flatbuffer(values["body"], kind))
        if form == "graphpipe"
        else (b"application/json", json.dumps(values["body"]).encode())
    )
    given = [(name.encode(), str(text).encode()) for name, text in values.get("headers", {}).items()]
    headers = Headers([(b"content-type", content), *given])
    if kind == "reply":
        return Message(headers=headers, parts=(coded,), status=200)
    return Message("POST", values.get("path", PATHS[form]), headers, (coded,), query=urlencode(values.get("query", {})))


def merged(value: Any, patch: Any) -> Any:
    """Return `value` with the members of `patch`. As in RFC 7396, None removes a member."""
    if not isinstance(patch, Mapping):
        return patch
    found = dict(value) if isinstance(value, Mapping) else {}
    for name, each in patch.items():
        if each is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), each)
    return found


# --- protobuf ---


def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    for folder in FOLDERS.values():
        for file in FileDescriptorSet.FromString((CODE / folder / "descriptors.binpb").read_bytes()).file:
            pool.Add(file)
    return pool


_POOL = _pool()


def protobuf(name: str, values: Values) -> bytes:
    """Return the bytes of the message with this full name. `values` use protobuf's JSON mapping."""
    made = ParseDict(values, GetMessageClass(_POOL.FindMessageTypeByName(name))())
    data: bytes = made.SerializePartialToString()
    return data


_CALLS = {
    "v2-grpc": ("/inference.GRPCInferenceService/ModelInfer", "inference.ModelInfer{}"),
    "grps-grpc": ("/grps.protos.v1.GrpsService/Predict", "grps.protos.v1.GrpsMessage"),
    "tfs-grpc": ("/tensorflow.serving.PredictionService/Predict", "tensorflow.serving.Predict{}"),
}
"""The inference method, and the name of its messages, where `{}` stands for `Request` or `Response`."""


def _grpc(form: str, values: Values, kind: str) -> Message:
    path, name = _CALLS[form]
    body = protobuf(name.format("Request" if kind == "request" else "Response"), values["body"])
    return Message(path=path if kind == "request" else "", parts=(body,))


_CALLED = {"request": {"service_name": "grps.protos.v1.GrpsBrpcService", "method_name": "Predict"}}


def _frame(values: Values, kind: str) -> Message:
    payload = protobuf("grps.protos.v1.GrpsMessage", values["body"])
    attachment = values.get("attachment", "").encode()
    usual = {**_CALLED, "correlation_id": 7} if kind == "request" else {"response": {}}
    meta = merged(usual, values.get("meta", {}))
    if attachment:
        meta["attachment_size"] = len(attachment)
    head = protobuf("brpc.policy.RpcMeta", meta)
    rest = head + payload + attachment
    return Message(parts=(pack("!4sII", b"PRPC", len(rest), len(head)), rest))


# --- flatbuffers ---

_TABLES = types((PROTOS / "graphpipe" / "graphpipe.fbs").read_text())
_SCALARS = {"int64": "Int64", "Type": "Uint8", "Req": "Uint8"}


def _flatbuffer(values: Values, kind: str) -> bytes:
    builder = Builder()
    if kind == "reply":
        root = _table(builder, "InferResponse", values)
    else:
        inner = _table(builder, "InferRequest", values)
        builder.StartObject(2)
        builder.PrependUint8Slot(0, 1, 0)
        builder.PrependUOffsetTRelativeSlot(1, inner, 0)
        root = builder.EndObject()
    builder.Finish(root)
    return bytes(builder.Output())


def _table(builder: Builder, name: str, values: Values) -> int:
    fields = _TABLES[name]
    unknown = set(values) - {member for member, _ in fields}
    assert not unknown, f"{name} has no {unknown}"
    ready = {
        member: _field(builder, of, values[member]) for member, of in fields if member in values and of not in _SCALARS
    }
    builder.StartObject(len(fields))
    for slot, (member, of) in enumerate(fields):
        if member in ready:
            builder.PrependUOffsetTRelativeSlot(slot, ready[member], 0)
        elif member in values:
            getattr(builder, f"Prepend{_SCALARS[of]}Slot")(slot, values[member], 0)
    place: int = builder.EndObject()
    return place


def _field(builder: Builder, of: str, value: Any) -> int:
    place: int
    if of == "string":
        place = builder.CreateString(value)
    elif of == "[uint8]":
        place = builder.CreateByteVector(base64.b64decode(value))
    elif of == "[int64]":
        builder.StartVector(8, len(value), 8)
        for each in reversed(value):
            builder.PrependInt64(each)
        place = builder.EndVector()
    else:
        inner = of.strip("[]")
        places = [builder.CreateString(each) if inner == "string" else _table(builder, inner, each) for each in value]
        builder.StartVector(4, len(places), 4)
        for each in reversed(places):
            builder.PrependUOffsetTRelative(each)
        place = builder.EndVector()
    return place


# --- MIP ---


def _packet(values: Values) -> Message:
    tlvs = b"".join(pack("!2L", each["type"], len(each["data"])) + each["data"].encode() for each in values["tlvs"])
    payload = pack("!2BH", values["n-input"], values["n-output"], values["batch size"]) + tlvs
    head = pack("!4BL", values["version"], values["kind"], values["subtype"], values["reserved"], len(payload))
    return Message(parts=(head, payload))
