"""`helm test` and the notes where listeners have TLS and ask for keys."""

import re
from typing import Any

from tests.deploy.rendered import NAMESPACE, Release, render

TLS = "{certificate: /tls/tls.crt, key: /tls/tls.key%s}"
CONFIG = """
config:
  listeners:
    - {{name: http, bind: "0.0.0.0:8443", protocols: [v2-rest], tls: {tls}, auth: {{accept: [keys]}}}}
    - {{name: grpc, bind: "0.0.0.0:8444", protocols: [v2-grpc], tls: {tls}, auth: {{anonymous: all}}}}
    - {{name: mip, bind: "0.0.0.0:9100", protocols: [mip], model: double, auth: {{accept: [certificates]}}}}
  auth: {{keys: {{file: /etc/gateway-keys/keys.yaml}}}}
demo: {{enabled: true}}
test:
  requests:
    - model: double
      inputs: [{{name: x, datatype: FP64, shape: [1, 2], data: [1, 2]}}]
"""


def secured(more: str = "", client: str = "") -> Release:
    secrets = "tls: {existingSecret: own}\nkeys: {existingSecret: keys}"
    return render(f"{CONFIG.format(tls=TLS % client)}{more}\n{secrets}")


def calls(release: Release) -> dict[str, str]:
    """The arguments of each call of `helm test`, by its name."""
    return dict(re.findall(r"^check (\S+) (.*)$", script(release), re.MULTILINE))


def script(release: Release) -> str:
    ((text,),) = (each["args"] for each in release.one("Pod")["spec"]["containers"])
    return str(text)


def volumes(release: Release) -> dict[str, Any]:
    return {each["name"]: each.get("secret") for each in release.one("Pod")["spec"]["volumes"]}


def test_helm_test_speaks_tls_to_listeners_that_have_it_and_checks_their_certificates() -> None:
    release = secured()
    found = calls(release)
    for name, address in (("http-v2-rest-0", "v2-rest+tls://"), ("grpc-v2-grpc-0", "v2-grpc+tls://")):
        assert found[name].startswith(address)
        assert f"--server-name={release.name}.{NAMESPACE}.svc $ca" in found[name]
    assert found["mip-mip-0"].startswith("mip://")
    assert "$ca" not in found["mip-mip-0"]
    ca = volumes(release)["ca"]
    assert (ca["secretName"], ca["items"]) == ("own", [{"key": "ca.crt", "path": "ca.crt"}]), "no private key"
    assert ca["optional"], "the Secret of a public CA has no ca.crt"
    assert "--insecure" not in script(release)


def test_helm_test_takes_the_ca_the_name_and_a_client_certificate_from_its_own_values() -> None:
    release = secured("  tls: {caSecret: roots, serverName: models.lab, clientSecret: tester}")
    assert volumes(release)["ca"]["secretName"] == "roots"
    assert volumes(release)["client"]["secretName"] == "tester"
    call = calls(release)["http-v2-rest-0"]
    assert "--server-name=models.lab" in call
    assert "--certificate=/client/tls.crt --certificate-key=/client/tls.key" in call


def test_without_tls_no_secret_is_mounted_in_the_pod_of_helm_test() -> None:
    release = render("{demo: {enabled: true}, tls: {existingSecret: own}, test: {tls: {clientSecret: tester}}}")
    assert set(volumes(release)) == {"requests", "tmp"}


def test_helm_test_sends_the_key_where_a_listener_asks_for_one_and_nowhere_else() -> None:
    release = secured("  keySecret: {name: tester, key: token}")
    (variable,) = release.one("Pod")["spec"]["containers"][0]["env"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "tester", "key": "token"}
    sent = {name: f'--key="${variable["name"]}"' in call for name, call in calls(release).items()}
    assert sent == {"http-v2-rest-0": True, "grpc-v2-grpc-0": False, "mip-mip-0": False}


def test_the_notes_say_that_helm_test_needs_a_key() -> None:
    assert "test.keySecret.name names a Secret" in secured().notes
    assert "test.keySecret.name names a Secret" not in secured("  keySecret: {name: tester}").notes


def test_the_notes_show_calls_over_tls_with_the_key() -> None:
    notes = secured().notes
    host = f"models-modelglot.{NAMESPACE}.svc"
    options = f'-H "Authorization: Bearer $KEY" --cacert ca.crt --resolve {host}:8443:127.0.0.1'
    assert f"curl {options} https://{host}:8443/v2/models/double" in notes
    assert f"grpcurl -cacert ca.crt -authority {host} -d" in notes
    assert "http://" not in notes
    assert "get secret own" in notes
    assert "--cert client.crt --key client.key" in secured(client=", client: required, client_ca: /c").notes


def test_an_existing_config_map_can_have_listeners_with_tls_and_keys() -> None:
    release = render(
        """
        existingConfigMap:
          name: own
          listeners:
            - {name: http, port: 8443, protocols: [v2-rest], tls: true, auth: true, prefix: {v2-rest: /v2-api}}
            - {name: near, port: 8444, protocols: [v2-rest], tls: true, clientCertificate: true}
        test:
          keySecret: {name: tester}
          requests: [{model: "it's", inputs: [{name: x, datatype: FP64, shape: [1], data: [1]}]}]
        """
    )
    assert [each["appProtocol"] for each in release.service["spec"]["ports"]] == ["https", "https"]
    assert ":8443/v2-api/v2/models/" in release.notes
    assert "--cert client.crt" in release.notes
    (call,) = calls(release).values()
    assert call.startswith("v2-rest+tls://")
    assert r"--model='it'\''s'" in call
