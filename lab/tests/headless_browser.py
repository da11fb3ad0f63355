"""A headless browser that tests can drive: DevTools over a pipe, using only the standard library.
Its options disable the network.
"""

import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT_SECONDS = 60.0
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--force-device-scale-factor=1",
    "--remote-debugging-pipe",
)


def program():
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page. Messages are JSON, each followed by a zero byte."""

    def __init__(self, profile):
        path = program()
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # Away from 3 and 4, where the browser expects its pipe.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (to_browser, from_browser)]
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._process = os.posix_spawn(
            path,
            [path, *OPTIONS, f"--user-data-dir={profile}", "about:blank"],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, ends[0], 3),
                (os.POSIX_SPAWN_DUP2, ends[1], 4),
                *((os.POSIX_SPAWN_DUP2, nothing, standard) for standard in range(3)),
            ],
        )
        for end in (to_browser, from_browser, *ends, nothing):
            os.close(end)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self.events = []
        self._session: str | None = None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._in)
        os.close(self._out)

    def call(self, method, **parameters):
        """Sends a command and returns its result; events that arrive meanwhile go to `events`."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _receive(self):
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._in, 1 << 16) if ready else b""
            if not data:
                raise RuntimeError("the browser does not answer")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, page, width, height=900, theme="light"):
        """Loads a page in this size and colour scheme, and waits until it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.events.clear()
        self.call("Page.navigate", url=page.absolute().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()

    def allow_scripts(self, allowed):
        """For pages. Code that a test runs with evaluate() is always allowed."""
        self.call("Emulation.setScriptExecutionDisabled", value=not allowed)

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )

    @property
    def complaints(self):
        """Everything that the browser logged as an error or warning, and each request to somewhere
        other than the page itself."""
        found = []
        for event in self.events:
            parameters = event["params"]
            if event["method"] == "Log.entryAdded":
                entry = parameters["entry"]
                if entry["level"] in ("error", "warning"):
                    found.append(entry["text"])
            elif event["method"] == "Runtime.exceptionThrown":
                found.append(str(parameters))
            elif event["method"] == "Network.requestWillBeSent":
                url = parameters["request"]["url"]
                if not url.startswith(("file:", "data:")):
                    found.append(url)
        return found
