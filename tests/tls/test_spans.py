"""What spans say of TLS."""

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.observing.collector import attributes, collecting
from tests.running_gateway import running_gateway
from tests.tls.certificates import Files
from tests.tls.running import ask, at, infer

CONFIG = """
listeners:
  - {{name: secure, bind: "127.0.0.1:0", protocols: [v2-rest], tls: {server}}}
  - {{name: plain, bind: "127.0.0.1:0", protocols: [v2-rest]}}
tracing: {{otlp: "{collector}", sample: 1, interval: 3600}}
backends:
  secure: {{protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:1"], tls: {{ca: {ca}}}}}
  plain: {{protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:1"]}}
routes:
  - {{match: {{listener: secure}}, backend: secure}}
  - {{match: {{listener: plain}}, backend: plain}}
"""


async def test_spans_say_https_where_tls_is_on(files: Files) -> None:
    with collecting() as collector:
        text = CONFIG.format(server=files.server, collector=collector.url, ca=files.ca)
        async with running_gateway(text) as gateway:
            await ask(at(gateway, "secure"), files.trusting(), infer("m"))
            await ask(at(gateway, "plain"), None, infer("m"))
            assert gateway.observing.tracing is not None
            await gateway.observing.tracing.flush()
    schemes, urls = {}, {}
    for span in collector.spans:
        known = attributes(span.attributes)
        if span.kind == Span.SPAN_KIND_SERVER:
            schemes[known["gateway.listener"]] = known["url.scheme"]
        elif span.kind == Span.SPAN_KIND_CLIENT:
            urls[known["gateway.backend"]] = str(known["url.full"]).partition(":")[0]
    assert schemes == urls == {"secure": "https", "plain": "http"}
