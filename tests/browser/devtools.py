"""
Chromium by its DevTools protocol, over two pipes: what tests of pages need, and nothing that must be installed.

A library would do more. Playwright brings a Node and 150 MB, for a browser of its own version; Selenium wants a driver
that fits the browser. These tests open a page, press keys, ask it by script, and read its console, in a dozen methods
of the protocol that have been the same for years.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.servers import chromium

ANSWER_S: Final = 60.0
"""How long the browser may take to answer; the machine may be busy with other things."""

LAUNCH: Final = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
"""Chromium reads its pipe at 3, and writes at 4."""

KEYS: Final[Mapping[str, tuple[str, int, str]]] = {
    "Tab": ("Tab", 9, ""), "Enter": ("Enter", 13, "\r"), "Escape": ("Escape", 27, ""), " ": ("Space", 32, " "),
    "ArrowRight": ("ArrowRight", 39, ""), "ArrowDown": ("ArrowDown", 40, ""), "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowUp": ("ArrowUp", 38, ""), "Backspace": ("Backspace", 8, ""), "End": ("End", 35, ""), "Home": ("Home", 36, ""),
}  # fmt: skip
"""By key: its place on a keyboard, its number for Windows, and the text that it types."""


class BrowserError(Exception):
    """The browser refused what it was asked, or a script failed on the page."""


class Browser:
    """A Chromium. `close` it."""

    def __init__(self, profile: Path) -> None:
        away, mine = os.pipe()
        here, theirs = os.pipe()
        handed = [fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in (away, theirs)]  # so neither is 3 or 4
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, *map(str, handed), *chromium.command(profile)],
                env=chromium.environment(profile), pass_fds=handed, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=(profile / "log").open("wb"),
            )  # fmt: skip
        finally:
            for one in (*handed, away, theirs):
                os.close(one)
        self._log = profile / "log"
        self._out, self._in = os.fdopen(mine, "wb", buffering=0), os.fdopen(here, "rb")
        self._number = 0
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._read, name="devtools", daemon=True).start()

    @property
    def pid(self) -> int:
        """The first of its processes."""
        return self._process.pid

    def ask(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """
        Call a method of the protocol.

        Raises:
            BrowserError: it refused, or did not answer.
        """
        with self._lock:
            self._number += 1
            number = self._number
            answers = self._answers[number] = queue.SimpleQueue[dict[str, Any]]()
            said = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
            try:
                self._out.write(json.dumps(said).encode() + b"\0")
            except OSError as error:
                raise BrowserError(f"{method}: {error}: {self._end()}") from error
        try:
            found = answers.get(timeout=ANSWER_S)
        except queue.Empty:
            raise BrowserError(f"{method} was not answered in {ANSWER_S:g} s: {self._end()}") from None
        finally:
            self._answers.pop(number, None)
        if "error" in found:
            raise BrowserError(f"{method}: {found['error']}")
        result: dict[str, Any] = found["result"]
        return result

    @contextmanager
    def page(self, width: int = 1280, height: int = 900, *, dark: bool = False) -> Iterator[Page]:
        """A page with cookies of its own."""
        context = self.ask("Target.createBrowserContext")["browserContextId"]
        target = self.ask("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        try:
            for domain in ("Page", "Runtime", "Log", "Network", "Inspector"):
                page.ask(f"{domain}.enable")
            page.size(width, height)
            page.colours(dark=dark)
            yield page
        finally:
            del self._pages[session]
            self.ask("Target.disposeBrowserContext", browserContextId=context)

    def seconds(self, kind: str) -> float:
        """Processor seconds that its processes of a kind have taken, such as `renderer`."""
        found = self.ask("SystemInfo.getProcessInfo")["processInfo"]
        return float(sum(one["cpuTime"] for one in found if one["type"] == kind))

    def close(self) -> None:
        """End it with all its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._out.close()

    def _read(self) -> None:
        rest = b""
        while got := self._in.read1(1 << 20):
            *whole, rest = (rest + got).split(b"\0")
            for one in whole:
                said = json.loads(one)
                if (answers := self._answers.get(said.get("id", 0))) is not None:
                    answers.put(said)
                elif (page := self._pages.get(said.get("sessionId", ""))) is not None:
                    page.took(said["method"], said["params"])
        for answers in list(self._answers.values()):
            answers.put({"error": f"the browser has ended: {self._end()}"})
        self._in.close()

    def _end(self) -> str:
        return self._log.read_text("utf-8", errors="replace")[-2000:]


class Page:
    """
    A page of a browser.

    Attributes:
        told: what went wrong on it: errors of scripts, lines of the console, dialogs, and policies that were broken.
        asked: the addresses that it has asked.
    """

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self._session = browser, session
        self.told: list[str] = []
        self.asked: list[str] = []
        self._loaded = threading.Event()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """See `Browser.ask`."""
        return self.browser.ask(method, self._session, **params)

    def took(self, method: str, params: Mapping[str, Any]) -> None:
        """An event of the browser; on the thread that reads."""
        match method:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Network.requestWillBeSent":
                self.asked.append(params["request"]["url"])
            case "Page.javascriptDialogOpening":
                self.told.append(f"dialog: {params['message']}")
            case "Runtime.exceptionThrown":
                self.told.append(
                    f"exception: {params['exceptionDetails'].get('exception', params).get('description', params)}"
                )
            case "Runtime.consoleAPICalled":
                self.told.append(f"console {params['type']}: {params['args']}")
            case "Log.entryAdded":
                self.told.append(f"log {params['entry']['source']}: {params['entry']['text']}")
            case "Inspector.targetCrashed":
                self.told.append("the page has crashed")

    def open(self, url: str) -> None:
        """
        Open an address, and wait until it has loaded.

        Raises:
            BrowserError: it cannot be had.
        """
        self._loaded.clear()
        if why := self.ask("Page.navigate", url=url).get("errorText"):
            raise BrowserError(f"{url}: {why}")
        if not self._loaded.wait(ANSWER_S):
            raise BrowserError(f"{url} has not loaded in {ANSWER_S:g} s")

    @contextmanager
    def loads_again(self) -> Iterator[None]:
        """Wait at the end of the block until it has loaded itself again."""
        self._loaded.clear()
        yield
        assert self._loaded.wait(ANSWER_S), f"not within {ANSWER_S:g} s: the page loads itself again"

    def run(self, script: str) -> Any:
        """
        The value of an expression on the page; a promise is awaited.

        Raises:
            BrowserError: it failed there.
        """
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True)
        if "exceptionDetails" in found:
            raise BrowserError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def until(self, script: str, timeout_s: float = ANSWER_S) -> Any:
        """The value of an expression as soon as it is true; a node counts as true."""
        waits = (
            "new Promise((done) => { const end = performance.now() + %d; const look = () => { let found = null; "
            "try { found = (%s); } catch (error) { found = null; } if (found || performance.now() > end) "
            "done(found instanceof Node ? true : found); else setTimeout(look, 50); }; look(); })"
        )
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if found := self.run(waits % (min(timeout_s, ANSWER_S / 4) * 1000, script)):
                return found
        raise AssertionError(f"not within {timeout_s:g} s: {script}; the page shows: {self.text()[:500]}")

    def text(self, selector: str = "body") -> str:
        """What is to be read at a place."""
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key of `KEYS`, or one that types a character."""
        code, number, typed = KEYS.get(key, ("", 0, key))
        same = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": 8 if shift else 0}
        self.ask("Input.dispatchKeyEvent", type="keyDown" if typed else "rawKeyDown", text=typed, **same)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **same)

    def type(self, text: str) -> None:
        """Press the keys of a text."""
        for sign in text:
            self.press(sign)

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of what is there, which must be the uppermost there."""
        found = self.run(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)}); "
            "one.scrollIntoView({ block: 'center', inline: 'center' }); const box = one.getBoundingClientRect(); "
            "const [x, y] = [box.x + box.width / 2, box.y + box.height / 2]; "
            "return one.contains(document.elementFromPoint(x, y)) ? [x, y] : null; })()"
        )
        assert found, f"{selector} is covered"
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=found[0], y=found[1], button="left", clickCount=1)

    def size(self, width: int, height: int) -> None:
        """Make its window as wide and as high, in CSS pixels."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def colours(self, *, dark: bool) -> None:
        """What a system with dark or light windows asks for."""
        wish = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[wish])

    def picture(self, file: Path) -> None:
        """Write what the window shows, as PNG."""
        found = self.ask("Page.captureScreenshot", format="png", optimizeForSpeed=False)
        file.write_bytes(base64.b64decode(found["data"]))
