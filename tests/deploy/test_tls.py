"""The chart's certificates: Secrets that exist, those that cert-manager makes, and probes over TLS."""

import pytest

from tests.deploy.rendered import Release, render

CONFIG = """
config:
  listeners:
    - {name: http, bind: "0.0.0.0:8443", protocols: [v2-rest], tls: {certificate: /tls/tls.crt, key: /tls/tls.key}}
    - {name: grpc, bind: "0.0.0.0:8444", protocols: [v2-grpc], tls: {certificate: /tls/tls.crt, key: /tls/tls.key}}
  health: {bind: "0.0.0.0:9091", tls: {certificate: /tls/tls.crt, key: /tls/tls.key}}
"""
OWN = f"{CONFIG}\ntls: {{existingSecret: own}}"


def mounts(release: Release) -> dict[str, str]:
    return {each["name"]: each["mountPath"] for each in release.container["volumeMounts"]}


def secrets(release: Release) -> dict[str, str]:
    return {each["name"]: each["secret"]["secretName"] for each in release.pod["volumes"] if "secret" in each}


def test_without_values_there_is_no_secret_and_probes_are_plain() -> None:
    release = render()
    assert secrets(release) == {}
    assert not release.all("Certificate")
    assert "scheme" not in release.container["readinessProbe"]["httpGet"]


def test_secrets_that_exist_are_mounted() -> None:
    release = render(f"{CONFIG}\ntls: {{existingSecret: own, clientCaSecret: clients}}")
    assert secrets(release) == {"tls": "own", "tls-clients": "clients"}
    assert mounts(release)["tls"] == "/tls"
    assert mounts(release)["tls-clients"] == "/tls-clients"
    assert not release.all("Certificate")


def test_certificates_of_a_volume_of_ones_own_may_be_where_those_of_the_secret_are() -> None:
    release = render(f"{CONFIG}\nextraVolumeMounts: [{{name: mine, mountPath: /tls}}]")
    assert mounts(release)["mine"] == "/tls"


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_probes_use_tls_where_the_health_port_has_it(probe: str) -> None:
    assert render(OWN).container[probe]["httpGet"]["scheme"] == "HTTPS"
    listeners = "[{name: http, port: 1, protocols: [v2-rest]}]"
    existing = f"existingConfigMap: {{name: own, listeners: {listeners}, healthTls: true}}"
    assert render(existing).container[probe]["httpGet"]["scheme"] == "HTTPS"


def test_ports_with_tls_say_so() -> None:
    ports = {each["name"]: each.get("appProtocol") for each in render(OWN).service["spec"]["ports"]}
    assert ports == {"http": "https", "grpc": "https"}


def test_cert_manager_makes_the_secret_that_is_mounted() -> None:
    release = render(
        f"{CONFIG}\ntls: {{certManager: {{enabled: true, issuerRef: {{name: lab, kind: ClusterIssuer}}, "
        "dnsNames: [models.lab], duration: 2160h, renewBefore: 360h, annotations: {team: science}}}"
    )
    made = release.one("Certificate")
    assert made["apiVersion"] == "cert-manager.io/v1"
    assert made["spec"]["secretName"] == secrets(release)["tls"]
    assert made["spec"]["issuerRef"] == {"name": "lab", "kind": "ClusterIssuer"}
    assert release.service["metadata"]["name"] in made["spec"]["dnsNames"]
    assert "models.lab" in made["spec"]["dnsNames"]
    assert (made["spec"]["duration"], made["spec"]["renewBefore"]) == ("2160h", "360h")
    assert made["metadata"]["annotations"] == {"team": "science"}


PUBLIC = f"""{CONFIG}
demo: {{enabled: true}}
metrics: {{serviceMonitor: {{enabled: true}}}}
tls:
  certManager:
    enabled: true
    issuerRef: {{name: letsencrypt, kind: ClusterIssuer}}
    serviceNames: false
    dnsNames: ["*.models.example.com", models.example.com]
"""


def test_the_certificate_of_a_public_ca_has_no_names_of_the_cluster() -> None:
    assert render(PUBLIC).one("Certificate")["spec"]["dnsNames"] == ["*.models.example.com", "models.example.com"]


def test_what_checks_the_certificate_of_a_public_ca_uses_its_name_and_the_cas_that_everybody_trusts() -> None:
    release = render(PUBLIC)
    name = f"{release.name}.models.example.com"
    (text,) = release.one("Pod")["spec"]["containers"][0]["args"]
    assert f"--server-name={name} " in text
    (endpoint,) = release.one("ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["tlsConfig"] == {"serverName": name}
    assert f"curl --resolve {name}:8443:127.0.0.1 https://{name}:8443/" in release.notes
    assert "ca.crt" not in release.notes


def test_cert_manager_needs_an_issuer() -> None:
    with pytest.raises(Exception, match=r"tls\.certManager\.issuerRef: name an Issuer"):
        render("tls: {certManager: {enabled: true}}")
