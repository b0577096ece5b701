"""Suggestions for unknown options, such as options of other programs."""

from collections.abc import Collection
from difflib import get_close_matches

OPTIONS = {
    "address": ("--bind", "--to"),
    "api-key": ("--key",),
    "cacert": ("--ca",),
    "cert": ("--certificate",),
    "clients": ("--in-flight",),
    "concurrency": ("--in-flight",),
    "config-file": ("--config",),
    "data": ("--set", "--input"),
    "duration": ("--seconds", "--timeout"),
    "file": ("--config",),
    "host": ("--bind",),
    "iterations": ("--requests",),
    "model-name": ("--model",),
    "num-requests": ("--requests",),
    "out": ("--output",),
    "port": ("--bind",),
    "qps": ("--rate",),
    "request-rate": ("--rate",),
    "rps": ("--rate",),
    "skip-verify": ("--insecure",),
    "time": ("--seconds", "--timeout"),
    "token": ("--key",),
    "url": ("--backend", "--to"),
    "users": ("--in-flight",),
    "verify": ("--insecure",),
}
"""Options of curl, wrk, hey, k6, Locust, perf_analyzer and similar programs, and the options of `gateway` with the same
meaning."""

KEYS = {
    "backend": "backends",
    "concurrency": "backends.*.max_in_flight",
    "grpc-port": "listeners[].bind",
    "host": "listeners[].bind",
    "http-port": "listeners[].bind",
    "log-level": "log.level",
    "max-instances": "backends.*.servers.max",
    "min-instances": "backends.*.servers.min",
    "port": "listeners[].bind",
    "protocol": "listeners[].protocols",
    "replicas": "workers",
    "timeout": "backends.*.policies[].timeout",
    "tls-cert": "listeners[].tls.certificate",
    "workers": "workers",
}
"""Options of other model servers, and the configuration keys with the same meaning."""


def meant(option: str, options: Collection[str], *, takes_config: bool) -> str:
    """Return advice for `option`, which is not one of the command's `options`, or an empty string if no option is
    similar. If `takes_config` is set, the advice can be a configuration key."""
    name = option.lstrip("-").partition("=")[0].replace("_", "-").lower()
    close = get_close_matches(f"--{name}", options, n=1, cutoff=0.75)
    if close:
        return f"did you mean {close[0]}?"
    name = next(iter(get_close_matches(name, [*OPTIONS, *KEYS], n=1, cutoff=0.85)), name)
    same = [each for each in OPTIONS.get(name, ()) if each in options]
    if same:
        return f"use {same[0]}"
    if takes_config and name in KEYS:
        return f"use the configuration key `{KEYS[name]}`"
    return ""
