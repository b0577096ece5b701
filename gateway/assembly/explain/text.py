"""Renders explanations as text, for `gateway explain` and `gateway route`."""

from collections.abc import Iterator

from gateway.assembly.explain.decision import BackendNames, Decision
from gateway.assembly.explain.request import BEGINNING, CallShown, Explanation, MessageShown, RequestShown
from gateway.bridge.comparison import CastShown, TensorChange, TensorShown


def decision_lines(decision: Decision) -> Iterator[str]:
    """Yield the lines that describe a routing decision."""
    model = f"model {decision.model!r}" if decision.model else "no model"
    version = f" version {decision.version!r}" if decision.version else ""
    yield (f"{decision.operation} for {model}{version} over {decision.protocol} at listener {decision.listener!r}")
    if decision.note:
        yield f"  {decision.note}"
    if decision.readings:
        yield f"  the name is read as {', or as '.join(decision.readings)}"
    for each in decision.routes:
        if each.taken:
            yield f"  {each.route}: matches"
        elif each.unmet:
            yield f"  {each.route}: {'; '.join(each.unmet)}"
        else:
            yield f"  {each.route}: would match, but an earlier route does"
    yield from _backend_lines("  ", decision.backends)
    if decision.passes_unread:
        yield "  messages pass unread"
    elif decision.reads:
        yield f"  the gateway decodes messages because of {decision.reads}"
    for step in decision.steps:
        yield f"  step {step.step!r} calls model {step.model!r}: {step.route or step.error}"
        yield from (f"    {each}" for each in step.inputs)
        yield from _backend_lines("    ", step.backends)
    if decision.error:
        yield f"  no route: {decision.error}"


def _backend_lines(margin: str, backends: tuple[BackendNames, ...]) -> Iterator[str]:
    for backend in backends:
        version = f" version {backend.version!r}" if backend.version else ""
        yield f"{margin}{backend.role} {backend.backend!r} ({backend.protocol}): model {backend.model!r}{version}"
        if backend.error:
            yield f"{margin}  refused: {backend.error}"


def explanation_lines(found: Explanation) -> Iterator[str]:
    """Yield the lines that explain a request."""
    yield f"{found.protocol} over {found.transport} at listener {found.listener!r}"
    if found.pattern:
        yield f"  pattern {found.pattern}"
    yield from _message_lines("received", found.received)
    if found.request is not None:
        yield from _request_lines(found.request)
    if found.decision is not None:
        yield from decision_lines(found.decision)
    for note in found.notes:
        yield f"note: {note}"
    if found.signature:
        yield f"signature: {found.signature}"
    yield from _change_lines("inputs", found.inputs)
    if found.rows > 1:
        more = "; not all are shown" if len(found.calls) < found.rows else ""
        yield f"  {found.rows} calls: the backend takes one row each{more}"
    for call in found.calls:
        yield from _call_lines(call, is_sent=found.sent)
    yield from _change_lines("outputs", found.outputs)
    if found.error is not None:
        yield f"error in stage {found.error.stage}: {found.error.status} ({found.error.reason}): {found.error.text}"
    if found.reply is not None:
        yield from _message_lines("reply to the client", found.reply)
    if found.seconds:
        yield f"times: {', '.join(f'{stage} {_milliseconds(seconds)}' for stage, seconds in found.seconds)}"


def _request_lines(request: RequestShown) -> Iterator[str]:
    version = f" version {request.version!r}" if request.version else ""
    yield f"request: {request.operation} of model {request.model!r}{version}"
    for each in request.inputs:
        yield f"  input {_tensor_text(each)}"
    if request.outputs:
        yield f"  asks for the outputs {', '.join(map(repr, request.outputs))}"
    for name, text in request.parameters:
        yield f"  parameter {name!r}: {text}"


def _change_lines(what: str, changes: tuple[TensorChange, ...]) -> Iterator[str]:
    if changes:
        yield f"{what}, before and after"
    for change in changes:
        if change.before is None or change.after is None:
            tensor, verb = (change.after, "added") if change.after is not None else (change.before, "left out")
            assert tensor is not None
            yield f"  {_tensor_text(tensor)}: {verb}"
            continue
        is_same = change.before == change.after
        yield f"  {_tensor_text(change.before)} -> {'unchanged' if is_same else _tensor_text(change.after)}"
        if change.cast is not None:
            yield f"    {_cast_text(change.cast)}"


def _cast_text(cast: CastShown) -> str:
    text = f"{cast.from_datatype} to {cast.to_datatype}"
    if cast.error is None:
        return f"{text}: every value is the same"
    return f"{text}: the largest error is {cast.error:g}, element {cast.element}: {cast.before} became {cast.after}"


def _call_lines(call: CallShown, *, is_sent: bool) -> Iterator[str]:
    to = f" of backend {call.backend!r}" if call.backend else ""
    verb = "sent" if is_sent else "would be sent"
    yield from _message_lines(f"{call.operation} {verb} to {call.endpoint}{to}", call.message)
    if call.error:
        yield f"  failed: {call.error}"
    if call.reply is not None:
        yield from _message_lines("  its reply", call.reply)
    known = (("encode", call.encode), ("exchange", call.exchange), ("decode", call.decode))
    yield f"  times: {', '.join(f'{name} {_milliseconds(each)}' for name, each in known if each is not None)}"


def _message_lines(what: str, message: MessageShown) -> Iterator[str]:
    status = f" status {message.status}" if message.status else ""
    method = f" {message.method}" if message.method and message.method != message.path else ""
    path = f" {message.path}" if message.path else ""
    address = f"{method}{path}{status}".strip()
    sent = ", sent unchanged" if message.as_it_came else ""
    yield f"{what}: {address}{', ' if address else ''}{message.size} bytes{sent}"
    for name, text in message.headers:
        yield f"  {name}: {text}"
    if message.beginning:
        more = "..." if message.size > BEGINNING else ""
        yield f"  {message.beginning}{more}"


def _tensor_text(tensor: TensorShown) -> str:
    untyped = " (JSON gave no datatype)" if tensor.untyped else ""
    name = repr(tensor.name) if tensor.name else "without a name"
    return f"{name} {tensor.datatype} {list(tensor.shape)}{untyped}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3f} ms"
