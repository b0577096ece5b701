"""Options that commands do not have: what is said of them, and the exit code."""

import pytest

from tests.cli.commands import gateway

CONFIG = ("--config", "config/gateway.yaml")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("bench", "--duration", "3"), "--duration (use --seconds)"),
        (("bench", "--concurrency=3"), "--concurrency (use --in-flight)"),
        (("bench", "--concurency", "3"), "--concurency (use --in-flight)"),
        (("bench", "--qps", "3"), "--qps (use --rate)"),
        (("call", "--token", "x"), "--token (use --key)"),
        (("probe", "--duration", "3"), "--duration (use --timeout)"),
        (("serve", "--confg", "x"), "--confg (did you mean --config?)"),
        (("serve", "--max-instances", "3"), "--max-instances (use the configuration key `backends.*.servers.max`)"),
        (("serve", "--port", "80"), "--port (use the configuration key `listeners[].bind`)"),
        (("reference", "--port", "80"), "--port (use --bind)"),
        (("schema", "--nonsense"), "--nonsense\n"),
    ],
)
def test_an_unknown_option_is_answered_with_what_is_meant(arguments: tuple[str, ...], hint: str) -> None:
    result = gateway(*arguments)
    assert result.exit_code == 2
    assert f"No such option: {hint}" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("route", *CONFIG, "--protocol", "nosuch", "--model", "m"),
        ("route", *CONFIG, "--protocol", "v2-rest", "--listener", "nosuch"),
        ("route", *CONFIG, "--protocol", "v2-rest", "--input", "x"),
        ("explain", *CONFIG, "no/such/file"),
        ("openapi", *CONFIG, "--listener", "nosuch"),
        ("graph", *CONFIG, "nosuch"),
        ("reference", "--protocol", "nosuch", "--bind", "127.0.0.1:0", "--model", "double"),
        ("reference", "--protocol", "v2-rest", "--bind", "127.0.0.1:0", "--model", "nosuch"),
        ("record", *CONFIG, "--output", "no/such/folder/file"),
        ("call", "nosuch://127.0.0.1:1", "m"),
        ("replay", "no/such/file", "--to", "v2-rest://127.0.0.1:1"),
        ("conformance", "127.0.0.1:1", "--protocol", "nosuch"),
        ("keys", "add", "--file", "keys.yaml", "--principal", ""),
    ],
    ids=lambda arguments: " ".join(each for each in arguments if each not in CONFIG),
)
def test_wrong_usage_ends_every_command_with_2(arguments: tuple[str, ...]) -> None:
    assert gateway(*arguments).exit_code == 2
