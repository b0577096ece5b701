"""The tools behind commands that do more than call the gateway or a server: a folder for each tool. They use the client
and the configuration, and none of them knows the options or the exit codes of its command in `cli`.

`printed` makes the texts of servers safe to print; `admin_port` asks a running gateway; `doctor` looks at the machine.
"""
