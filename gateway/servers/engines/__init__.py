"""The engines that run model servers. Each engine is a module; its name is the value of `servers.engine`.

An engine module has

- `start(settings)`: an Engine (`gateway.servers.engine`) for one backend, from the ServersSettings of its `servers`;
- `REQUIRES`: what must be installed for it, for the error if it is not; empty for none;
- `is_installed()`: whether that is there;
- `POLL_SECONDS`: the seconds between two questions for reports.
"""
