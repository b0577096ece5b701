"""The engines that run model servers. Each engine is a module; its name is the value of `servers.engine`.

An engine module has:

- `start(settings)`: returns an Engine (`gateway.servers.engine`) for one backend with these ServersSettings.
- `REQUIRES`: the required software, for the error if it is missing. Empty if the engine requires no software.
- `is_installed()`: returns True if the required software is installed.
- `POLL_SECONDS`: the interval between two queries for reports, in seconds.
"""
