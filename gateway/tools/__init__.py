"""The tools behind commands that do more than call the gateway or a server, in a folder for each tool. Tools use the
client and the configuration, but do not know the options and the exit codes of their commands in `cli`.

`printed` makes the texts of servers safe to print, `admin_port` queries a running gateway, and `doctor` examines the
machine.
"""
