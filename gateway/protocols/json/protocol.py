"""Creates the Protocol of a form. The Protocol's five functions are bound to the compiled form."""

from typing import TYPE_CHECKING

from gateway.core.protocol import (
    DecodeRequest,
    EncodeResponse,
    HttpBinding,
    Models,
    Protocol,
    Rows,
    StreamFraming,
    Traits,
    Wire,
)
from gateway.protocols.json.checks import check_form
from gateway.protocols.json.client import FormClient
from gateway.protocols.json.compiled import CompiledExchange, CompiledForm, compile_form
from gateway.protocols.json.form import PREFIX, Form
from gateway.protocols.json.media.streams import STREAM_KINDS
from gateway.protocols.json.one_row import reading_one_row, writing_one_row
from gateway.protocols.json.relay import FormRelay
from gateway.protocols.json.server import FormServer
from gateway.protocols.json.templates import ParameterPlace, ParametersPlace, Word, walk_all

if TYPE_CHECKING:
    from gateway.core.json.openapi import DescribeOperation


def protocol_of(name: str, form: Form) -> Protocol:
    """Return the protocol `json:NAME` that `form` describes.

    Raises:
        FormError: a template cannot be used, or the gateway could not read its messages unambiguously. The error
            contains the position in the form.
    """
    compiled = compile_form(name, form)
    check_form(compiled)
    server, client = FormServer(compiled), FormClient(compiled)
    decode_request: DecodeRequest = server.decode_request
    encode_response: EncodeResponse = server.encode_response
    if form.batch:
        decode_request = reading_one_row(decode_request, form.tensors)
        encode_response = writing_one_row(encode_response)
    streams = any(each.form.stream for each in compiled.exchanges)
    return Protocol(
        PREFIX + name,
        binding=HttpBinding(
            wants_stream=server.wants_stream if streams else None,
            body_wants_stream=server.body_wants_stream if server.has_mixed_streams else None,
            stream_framing=_framing(compiled),
        ),
        patterns=server.patterns,
        decode_request=decode_request,
        encode_response=encode_response,
        encode_error=server.encode_error,
        encode_request=client.encode_request,
        decode_response=client.decode_response,
        traits=_traits(compiled),
        encode_end=server.encode_end if streams else None,
        describer=lambda: _describer(compiled),
        relay=FormRelay(compiled, client).relay,
    )


def _describer(form: CompiledForm) -> "DescribeOperation":
    from gateway.protocols.json.openapi import describer  # imported only when a client requests a document

    return describer(form)


def _framing(form: CompiledForm) -> StreamFraming | None:
    return next((STREAM_KINDS[each.form.stream].framing for each in form.exchanges if each.form.stream), None)


def _traits(form: CompiledForm) -> Traits:
    return Traits(
        wire=Wire(
            # the messages of the protocol do not state the tensors that the form declares
            untyped=True,
            unnamed=True,
            selects=False,
            rows=Rows.ONE if form.form.batch else Rows.FREE,
            scalars_in_rows=bool(form.form.batch),
            nan=form.form.nan or "error",
            parameters=any(map(_has_parameters, form.exchanges)),
            streams=any(each.form.stream for each in form.exchanges),
        ),
        models=Models(
            named=all(_names_model(form)),
            may_be_named=any(_names_model(form)),
            versions=bool
            if any("{version}" in path for each in form.exchanges for path in each.form.accepted_paths)
            else None,
            # the form's declaration applies to every model name, even if the server has no model with this name
            companions=all(_names_model(form)) and form.signature is None,
            ready_as_a_whole=True,
            metadata_parts=(),
            trusted_metadata=form.signature is not None,
            signature=form.signature,
            platform="json",
        ),
    )


def _has_parameters(exchange: CompiledExchange) -> bool:
    """Return True if the exchange's requests can contain parameters."""
    places = ParameterPlace | ParametersPlace
    return bool(exchange.head.parameters) or any(isinstance(each, places) for each in walk_all(exchange.input_nodes))


def _names_model(form: CompiledForm) -> list[bool]:
    """Return, for each path of each exchange, whether its requests name a model."""
    return [
        Word.MODEL in each.request.words or Word.MODEL in each.head.words or "{model}" in path
        for each in form.exchanges
        for path in each.form.accepted_paths
    ]
