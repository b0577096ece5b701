"""The engines that run model servers. Each engine is a module; its name is the value of `servers.engine`.

An engine module defines:

- `start(settings)`: returns an Engine (`gateway.servers.engine`) for a backend with these ServersSettings.
- `REQUIRES`: the required software, for the error message if it is missing. Empty if the engine requires no software.
- `is_installed()`: returns True if the required software is installed.
- `POLL_SECONDS`: the polling interval for reports, in seconds.
"""
