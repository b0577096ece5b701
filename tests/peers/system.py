"""System programs that some tests and benchmarks use.

`make peers` installs those that are missing where it may: as root on Debian. Elsewhere it says what is missing, and
what needs them is skipped with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

PROGRAMS = {
    "redis-server": "redis-server",
    "nginx": "nginx-light",
    "chromium": "chromium",
    "wrk": "wrk",
    "h2load": "nghttp2-client",
    "java": "default-jre-headless",
    "slurmctld": "slurm-wlm",
    "munged": "munge",
}
"""Each program with the Debian package that has it."""

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
"""Where programs are looked for: Debian's servers are where a user's PATH may not lead."""

SECONDS = 180.0


def missing(programs: Mapping[str, str] = PROGRAMS) -> dict[str, str]:
    """The programs that this machine lacks, each with its package."""
    return {program: package for program, package in programs.items() if shutil.which(program, path=PATH) is None}


def install() -> str:
    """Install what is missing. Returns a line that says what was done, or what is missing and why."""
    lacking = missing()
    if not lacking:
        return "system programs: up to date"
    names = ", ".join(lacking)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        packages = " ".join(lacking.values())
        return (
            f"system programs: {names} missing, so that their tests are skipped; on Debian: apt-get install {packages}"
        )
    # Runlevel 1 keeps the packages from starting their services.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", *lacking.values()]):
        try:
            done = subprocess.run(
                ["apt-get", *command], env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return f"system programs: {names} missing, so that their tests are skipped; apt-get took too long"
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            return f"system programs: {names} missing, so that their tests are skipped; apt-get: {reason}"
    return f"system programs: {names} installed"
