"""The commands. Each command is a module that contains a function or a Typer of the same name."""
