"""Runs the lab's command line as a fork of a process that has imported it: the import takes a third
of a second of processor time, and tests run it more than a hundred times.
"""

import atexit
import contextlib
import functools
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

MAX_BYTES = 1 << 20  # of a request


def run(*arguments, env, cwd=None, timeout=180):
    """Returns what `subprocess.run([sys.executable, "-m", "tsmlab", ...])` would."""
    words = list(map(str, arguments))
    request = json.dumps([words, dict(env), str(cwd or Path.cwd())]).encode()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        connection = _server()
        connection.settimeout(timeout)
        try:
            socket.send_fds(connection, [request], [output.fileno(), errors.fileno()])
            answer = connection.recv(100)
        except TimeoutError:
            _server.cache_clear()  # that one is busy
            raise
        assert answer, "the server has ended"
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(words, int(answer), *texts)


@functools.cache
def _server():
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, its):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_BYTES)
    number = its.fileno()
    server = subprocess.Popen(
        [sys.executable, __file__, str(number)],
        pass_fds=[number],
        stdin=subprocess.DEVNULL,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
    its.close()
    atexit.register(_end, ours, server)
    return ours


def _end(connection, server):
    connection.close()
    server.wait()


def _serve(number):
    import numpy.ma  # noqa: F401, PLC0415 - what nearly each run imports

    import tsmlab.cli  # noqa: PLC0415
    import tsmlab.commands.studies  # noqa: PLC0415
    import tsmlab.compare  # noqa: F401, PLC0415

    connection = socket.socket(fileno=number)
    while True:
        request, files, _, _ = socket.recv_fds(connection, MAX_BYTES, 2)
        if not request:
            return
        child = os.fork()
        if child == 0:
            connection.close()
            _be_run(request, files)
        for file in files:
            os.close(file)
        _, status = os.waitpid(child, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def _be_run(request, files):
    """Becomes `python -m tsmlab` as far as the code can tell."""
    words, environment, folder = json.loads(request)
    for standard, file in enumerate(files, 1):
        os.dup2(file, standard)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["tsmlab", *words]
    status = 1
    try:
        runpy.run_module("tsmlab", run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()  # noqa: SLF001 - as the interpreter does
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
