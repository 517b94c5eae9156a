"""A headless Chromium, driven over two pipes with its own protocol: the standard library is enough."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

__all__ = ["BROWSER", "Browser"]

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# The browser reads orders from descriptor 3 and answers on 4.
START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
SECONDS = 30.0


class Browser:
    """One page. troubles: what its console, its exceptions and its failed fetches said."""

    def __init__(self, folder: Path) -> None:
        assert BROWSER is not None
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        high = [fcntl.fcntl(handle, fcntl.F_DUPFD, 10) for handle in (orders, answers)]
        arguments = (
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
            *("--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={folder}"),
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, *map(str, high), BROWSER, *arguments, "about:blank"],
            pass_fds=high, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for handle in (orders, answers, *high):
            os.close(handle)
        self._number = 0
        self._rest = b""
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        self.troubles: list[str] = []

    def __enter__(self) -> Self:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._orders)
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One order and its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._orders, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer}"
                return answer["result"]

    def open(self, path: Path, *, width: int, dark: bool) -> None:
        """Load a file, at this width and in this scheme; wait until it is there."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=1200, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._next()

    def value(self, expression: str) -> Any:
        """What a piece of JavaScript comes to."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """One key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def picture(self, path: Path) -> None:
        """A screenshot of the whole page."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            assert select.select([self._answers], [], [], max(0.0, end - time.monotonic()))[0], "the browser is silent"
            chunk = os.read(self._answers, 1 << 16)
            assert chunk, "the browser has ended"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self._events.append(message)
            self._note(message["method"], message["params"])
        return message

    def _note(self, method: str, told: dict[str, Any]) -> None:
        match method:
            case "Runtime.exceptionThrown" | "Network.loadingFailed":
                self.troubles.append(json.dumps(told))
            case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                self.troubles.append(json.dumps(told["entry"]))
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                self.troubles.append(json.dumps(told["args"]))
            case "Network.requestWillBeSent" if not told["request"]["url"].startswith(("file:", "data:", "about:")):
                self.troubles.append(f"fetches {told['request']['url']}")
            case _:
                pass
