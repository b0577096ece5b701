"""The commands. Each command is a module with a function or a Typer of the same name."""
