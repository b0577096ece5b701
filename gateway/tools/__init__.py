"""The tools behind commands that do more than call the gateway or a server, with one folder per tool. Tools use the
client and the configuration, but are independent of their commands' options and exit codes in `cli`.

`printed` makes text from servers safe to print, `admin_port` queries a running gateway, and `doctor` examines the
machine.
"""
