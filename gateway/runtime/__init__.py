"""The running gateway, in one process or several."""
