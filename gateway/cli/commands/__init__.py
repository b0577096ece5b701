"""The commands: one module each, with the function or the Typer of the same name."""
