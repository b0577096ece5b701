"""The running gateway, in one process or several. `starting` has the first steps of a process, and `process` its event
loop, log, standard streams and exit."""
