"""Every wire form over TLS, in both directions and with certificates of both sides."""

import json

from gateway.assembly.registry import protocols
from tests.running_gateway import reference, running_gateway
from tests.tls.certificates import Authority, Files
from tests.tls.running import ask, at, infer


def _far(files: Files, server: str) -> str:
    """One listener of each protocol, over TLS, in front of a server without it."""
    listeners = "".join(
        f"  - {{name: {name}, bind: 127.0.0.1:0, protocols: [{name}], model: m, tls: {files.asking('required')}}}\n"
        for name in protocols()
    )
    return f"""
listeners:
{listeners}
backends: {{lab: {{protocol: v2-rest, endpoints: ["{server}"]}}}}
routes: [{{match: {{model: "*"}}, backend: lab, rewrite: {{model: posterior}}}}]
"""


def _near(files: Files, own: Files, ports: dict[str, int]) -> str:
    """One backend of each protocol, over TLS, behind a listener of V2."""
    tls = f"{{ca: {files.ca}, certificate: {own.certificate}, key: {own.key}}}"
    backends = "".join(
        f'  {name}: {{protocol: {name}, endpoints: ["localhost:{port}"], tls: {tls}}}\n' for name, port in ports.items()
    )
    signature = (
        "{inputs: [{name: theta, datatype: FP64, shape: [-1, 2]}], "
        "outputs: [{name: logdensity, datatype: FP64, shape: [-1, 1]}]}"
    )
    routes = "".join(
        f"  - {{match: {{model: {name}}}, backend: {name}, rewrite: {{model: m}}, signature: {signature}}}\n"
        for name in ports
    )
    return f"""
listeners: [{{name: near, bind: "127.0.0.1:0", protocols: [v2-rest], tls: {files.server}}}]
backends:
{backends}
routes:
{routes}
"""


async def test_every_protocol_works_over_tls_on_both_sides(authority: Authority, files: Files) -> None:
    own = authority.issue(files.key.parent, "gateway.lab", stem="own")
    async with (
        reference("v2-rest", "posterior") as server,
        running_gateway(_far(files, server)) as far,
        running_gateway(_near(files, own, {name: at(far, name) for name in protocols()})) as near,
    ):
        for name in protocols():
            for _ in range(2):  # the second call may use the connection of the first one
                status, body = await ask(at(near, "near"), files.trusting(), infer(name))
                assert status == 200, (name, body)
                assert abs(json.loads(body)["outputs"][0]["data"][0] + 1.2625) < 1e-6, (name, body)


async def test_schemes_of_addresses_mean_tls_by_the_certificates_of_the_system(files: Files) -> None:
    """The test's CA is none of the system's: that the certificate is refused shows that TLS was spoken, and checked."""
    async with reference("v2-rest", "posterior") as server, running_gateway(_far(files, server)) as far:
        for scheme, name in (("https", "v2-rest"), ("grpcs", "v2-grpc"), ("tcps", "mip")):
            text = f"""
listeners: [{{name: near, bind: "127.0.0.1:0", protocols: [v2-rest]}}]
backends: {{lab: {{protocol: {name}, endpoints: ["{scheme}://localhost:{at(far, name)}"]}}}}
routes: [{{match: {{model: m}}, backend: lab}}]
"""
            async with running_gateway(text) as near:
                status, body = await ask(at(near, "near"), None, infer("m"))
                assert status == 503, body
                assert b"TLS: its certificate is signed by an unknown CA" in body


_PRINCIPALS = """
auth: {certificates: [{identity: "*.lab", principal: "certified:*"}]}
principals: {"certified:gateway.lab": {permissions: [use]}}
"""


async def test_certificates_of_clients_stand_for_principals_in_every_protocol(
    authority: Authority, files: Files
) -> None:
    """The one whose principal has permissions is served, one that is not known is not, and one without permissions may
    do nothing."""
    owns = {name: authority.issue(files.key.parent, name, stem=name) for name in ("gateway.lab", "a.b", "other.lab")}
    async with reference("v2-rest", "posterior") as server:
        far_text = _far(files, server).replace("model: m,", "model: m, auth: {},") + _PRINCIPALS
        async with running_gateway(far_text) as far:
            ports = {name: at(far, name) for name in protocols()}
            for identity, expected in (
                ("gateway.lab", ""),
                ("a.b", "no credentials"),
                ("other.lab", "does not have the permission"),
            ):
                async with running_gateway(_near(files, owns[identity], ports)) as near:
                    for name in protocols():
                        status, body = await ask(at(near, "near"), files.trusting(), infer(name))
                        assert (status == 200) is (not expected), (identity, name, body)
                        assert expected.encode() in body, (identity, name, body)
