"""The running gateway, in one or several processes. `starting` contains the first steps of a process, and `process`
contains its event loop, log, standard streams and exit."""
