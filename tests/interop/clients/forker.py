"""Runs one script of this folder again and again, each time in a process of its own.

`python forker.py SCRIPT` imports the script and the packages that it uses, which takes longer than most of what it is
asked for. Each line on stdin is then a folder. A process is forked for it, whose standard streams are the files
`stdin`, `stdout` and `stderr` of that folder. It calls the script's `main` with the arguments that stdin has, as a list
of JSON, writes what that returns as JSON to stdout, and ends. Its exit status is printed.

The parent calls nothing of the script, so that each process begins as one that has just imported it.
"""

import importlib
import json
import os
import sys
from contextlib import redirect_stdout

STREAMS = (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY | os.O_CREAT), ("stderr", os.O_WRONLY | os.O_CREAT))


def take_streams(folder):
    for number, (name, flags) in enumerate(STREAMS):
        file = os.open(os.path.join(folder, name), flags)
        os.dup2(file, number)
        os.close(file)


def main():
    folders, statuses = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    script = importlib.import_module(sys.argv[1])
    for folder in folders:
        child = os.fork()
        if child == 0:
            folders.close()
            statuses.close()
            take_streams(folder.rstrip("\n"))
            arguments = json.load(sys.stdin)
            with redirect_stdout(sys.stderr):  # some of the packages print
                result = script.main(*arguments)
            json.dump(result, sys.stdout)
            return
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=statuses, flush=True)


if __name__ == "__main__":
    main()
