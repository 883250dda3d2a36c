"""Pages as a browser shows them: headless chromium, driven by the DevTools protocol over a pipe."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from processes import HANGS_S

from seedbus.bus.clock import wall_seconds

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = "there is no chromium here (apt-get install chromium)"
DESKTOP, PHONE = (1280, 900), (390, 844)


class Browser:
    """One tab. Commands and events are JSON objects, each with a zero byte behind it.

    Attributes:
        problems: what the page has written to the console as an error, or failed to load, since `show`.
    """

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, back
        self._number, self._rest, self._session = 0, b"", ""
        self.problems: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def show(self, url: str, size: tuple[int, int], *, is_dark: bool = False) -> None:
        """Open a page in a window of (width, height) CSS pixels; one below 600 pixels is a phone's."""
        is_phone = size[0] < 600
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=is_phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self.problems.clear()
        self._ask("Page.navigate", url=url)
        self.wait_for(f"document.readyState === 'complete' && location.href.startsWith({json.dumps(url)})")

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        found = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until a JavaScript expression is true."""
        until_s = wall_seconds() + HANGS_S
        while not self.evaluate(expression):
            assert wall_seconds() < until_s, f"not within {HANGS_S} s: {expression}"
            time.sleep(0.02)  # each question takes the page's own time

    def press(self, *keys: str) -> None:
        """Press and release keys, by the names that events give them, such as ArrowRight, Tab or 0."""
        for key in keys:
            text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
            code = {"Tab": 9, "Enter": 13}.get(key, 0)
            self._ask("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
            self._ask("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def move_to(self, x: float, y: float) -> None:
        """Move the mouse to a place of the window, in CSS pixels."""
        self._ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def printed(self, path: Path) -> None:
        """Write the page into a PDF file, as it is printed."""
        path.write_bytes(base64.b64decode(self._ask("Page.printToPDF", printBackground=True)["data"]))

    def picture(self, path: Path, *, is_whole: bool = False) -> None:
        """Write what is seen, or the whole page, into a PNG file."""
        clip = {"clip": {**self._ask("Page.getLayoutMetrics")["cssContentSize"], "scale": 1}} if is_whole else {}
        found = self._ask("Page.captureScreenshot", captureBeyondViewport=is_whole, **clip)
        path.write_bytes(base64.b64decode(found["data"]))

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        order: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            order["sessionId"] = self._session
        os.write(self._to, json.dumps(order).encode() + b"\0")
        while True:
            message = self._read()
            if message.get("id") == self._number:
                assert "error" not in message, (method, message)
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        told, about = message.get("method"), message.get("params", {})
        is_error = about.get("type") in ("error", "assert") or about.get("entry", {}).get("level") == "error"
        if told == "Runtime.exceptionThrown" or (told in ("Runtime.consoleAPICalled", "Log.entryAdded") and is_error):
            self.problems.append(json.dumps(about))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            is_there, _, _ = select.select([self._back], [], [], HANGS_S)
            part = os.read(self._back, 1 << 20) if is_there else b""
            assert part, "chromium has ended, or says nothing"
            self._rest += part
        line, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        return message


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start chromium with its profile in a folder, and end it."""
    assert CHROMIUM is not None, MISSING
    (its_end, to), (back, its_answers) = os.pipe(), os.pipe()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
    order = [CHROMIUM, *options, f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        # the browser reads commands from descriptor 3 and writes to 4
        ["bash", "-c", f'exec "$@" 3<&{its_end} 4>&{its_answers}', "bash", *order],
        pass_fds=(its_end, its_answers),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(its_end)
    os.close(its_answers)
    try:
        yield Browser(to, back)
    finally:
        os.close(to)  # its end ends chromium too
        os.close(back)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
