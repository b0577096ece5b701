"""The tools behind commands that do more than call the gateway or a server, one folder per tool. Tools use the client
and the configuration, but are independent of the options and exit codes of their commands in `cli`.

`printed` makes text from servers safe to print, `admin_port` queries a running gateway, and `doctor` examines the
machine.
"""
