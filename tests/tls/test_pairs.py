"""Every wire form over TLS, in both directions and with certificates of both sides."""

from gateway.assembly.registry import protocols
from tests.running_gateway import reference, running_gateway
from tests.tls.certificates import Authority, Files
from tests.tls.running import ask, at, check_density, infer, near


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


async def test_schemes_of_addresses_mean_tls_by_the_certificates_of_the_system(files: Files) -> None:
    """The test's CA is none of the system's: that the certificate is refused shows that TLS was spoken, and checked."""
    async with reference("v2-rest", "posterior") as server, running_gateway(_far(files, server)) as far:
        for scheme, name in (("https", "v2-rest"), ("grpcs", "v2-grpc"), ("tcps", "mip")):
            text = f"""
listeners: [{{name: near, bind: "127.0.0.1:0", protocols: [v2-rest]}}]
backends: {{lab: {{protocol: {name}, endpoints: ["{scheme}://localhost:{at(far, name)}"]}}}}
routes: [{{match: {{model: m}}, backend: lab}}]
"""
            async with running_gateway(text) as gateway:
                status, body = await ask(at(gateway, "near"), None, infer("m"))
                assert status == 503, body
                assert b"TLS: its certificate is signed by an unknown CA" in body


_PRINCIPALS = """
auth: {certificates: [{identity: "*.lab", principal: "certified:*"}]}
principals: {"certified:gateway.lab": {permissions: [use]}}
"""


async def test_every_protocol_works_over_tls_on_both_sides_and_certificates_of_clients_stand_for_principals(
    authority: Authority, files: Files
) -> None:
    """A client whose principal has permissions is served, one that is not known is not, and one without permissions may
    do nothing."""
    owns = {name: authority.issue(files.key.parent, name, stem=name) for name in ("gateway.lab", "a.b", "other.lab")}
    async with reference("v2-rest", "posterior") as server:
        far_text = _far(files, server).replace("model: m,", "model: m, auth: {},") + _PRINCIPALS
        async with running_gateway(far_text) as far:
            ports = {name: at(far, name) for name in protocols()}
            texts = {name: near(ports, own.shown_to(files), files.server) for name, own in owns.items()}
            async with running_gateway(texts["gateway.lab"]) as gateway:
                for name in [*protocols()] * 2:  # the second call may use the connection of the first one
                    await check_density(gateway, name, files.trusting())
            for identity, why in (("a.b", b"no credentials"), ("other.lab", b"does not have the permission")):
                async with running_gateway(texts[identity]) as gateway:
                    for name in protocols():
                        status, body = await ask(at(gateway, "near"), files.trusting(), infer(name))
                        assert status != 200, (identity, name)
                        assert why in body, (identity, name, body)
