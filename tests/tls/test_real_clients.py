"""Real clients over TLS, with certificates of their own."""

import asyncio
import json
import subprocess

import grpc.aio
import pytest

from gateway.protocols.v2.grpc import schema
from tests.limits import GENEROUS
from tests.peers.build import require
from tests.running_gateway import reference, running_gateway
from tests.tls.certificates import Authority, Files
from tests.tls.running import THETA, at, credentials

INPUTS = json.dumps({"inputs": [{"name": "theta", "datatype": "FP64", "shape": [1, 2], "data": [THETA]}]})
DENSITY = -1.2625


def text(files: Files, server: str) -> str:
    tls = files.asking("required")
    return f"""
listeners:
  - {{name: http, bind: "127.0.0.1:0", protocols: [v2-rest], tls: {tls}}}
  - {{name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc], tls: {tls}}}
backends: {{lab: {{protocol: v2-rest, endpoints: ["{server}"]}}}}
routes: [{{match: {{model: posterior}}, backend: lab}}]
"""


async def output(*command: str) -> tuple[int, bytes, bytes]:
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, error = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out, error


@pytest.mark.real("curl")
async def test_curl(authority: Authority, files: Files) -> None:
    own = authority.issue(files.key.parent, "worker.lab", stem="own")
    async with reference("v2-rest", "posterior") as server, running_gateway(text(files, server)) as gateway:
        url = f"https://localhost:{at(gateway, 'http')}/v2/models/posterior/infer"
        common = ["curl", "-sS", "--cacert", str(files.ca), "-d", INPUTS, url]
        _, out, _ = await output(*common, "--cert", str(own.certificate), "--key", str(own.key))
        assert json.loads(out)["outputs"][0]["data"] == [pytest.approx(DENSITY)]
        code, _, error = await output(*common)
        assert code != 0, error
        plain = url.replace("https", "http")
        assert (await output("curl", "-sS", plain))[1] == b"This port is served over TLS: use https\n"


async def test_grpcio(authority: Authority, files: Files) -> None:
    own = authority.issue(files.key.parent, "worker.lab", stem="own")
    request = schema.ModelInferRequest(model_name="posterior")
    request.inputs.add(name="theta", datatype="FP64", shape=[1, 2]).contents.fp64_contents.extend(THETA)
    async with reference("v2-rest", "posterior") as server, running_gateway(text(files, server)) as gateway:
        target = f"localhost:{at(gateway, 'grpc')}"
        async with grpc.aio.secure_channel(target, credentials(files, own)) as channel:
            call = channel.unary_unary(schema.MODEL_INFER, response_deserializer=schema.ModelInferResponse.FromString)
            reply = await call(request.SerializeToString())
            assert reply.outputs[0].name == "logdensity"
        trusting, not_trusting = (grpc.ssl_channel_credentials(ca) for ca in (files.ca.read_bytes(), None))
        for made in (
            grpc.aio.secure_channel(target, trusting),
            grpc.aio.secure_channel(target, not_trusting),
            grpc.aio.insecure_channel(target),
        ):
            async with made as channel:
                with pytest.raises(grpc.aio.AioRpcError) as failed:
                    await channel.unary_unary(schema.MODEL_INFER)(request.SerializeToString(), timeout=GENEROUS)
                assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
        # of the last one: at once, and not the text of GOAWAY, which it would not show
        assert "HTTP status 400" in str(failed.value.details())


TRITON = """
import sys, numpy
address, ca, certificate, key, kind = sys.argv[1:]
if kind == "grpc":
    import tritonclient.grpc as client
    server = client.InferenceServerClient(address, ssl=True, root_certificates=ca, private_key=key,
                                          certificate_chain=certificate)
else:
    import ssl, tritonclient.http as client
    def context():
        made = ssl.create_default_context(cafile=ca)
        made.load_cert_chain(certificate, key)
        return made
    server = client.InferenceServerClient(address, ssl=True, ssl_context_factory=context)
item = client.InferInput("theta", [1, 2], "FP64")
item.set_data_from_numpy(numpy.array([[0.5, -0.25]]))
print(server.infer("posterior", [item]).as_numpy("logdensity")[0, 0])
"""


@pytest.mark.real
@pytest.mark.parametrize("kind", ["http", "grpc"])
async def test_tritonclient(authority: Authority, files: Files, kind: str) -> None:
    own = authority.issue(files.key.parent, "worker.lab", stem="own")
    python = str(require("tritonclient") / "bin" / "python")
    async with reference("v2-rest", "posterior") as server, running_gateway(text(files, server)) as gateway:
        address = f"localhost:{at(gateway, kind)}"
        arguments = (address, str(files.ca), str(own.certificate), str(own.key), kind)
        _, out, error = await output(python, "-c", TRITON, *arguments)
        assert float(out) == pytest.approx(DENSITY), error
