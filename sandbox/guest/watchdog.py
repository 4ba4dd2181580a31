"""Says on stderr where a guest hangs, before its deadline: the log's tail then shows the line."""

import sys
import threading
import time
import traceback

WARNING_SHARE = 0.8
"""Of the deadline: late enough to be a hang, early enough to be in the log before the kill."""


class Watchdog:
    """Watches the main thread while it owes the host an answer; prints its stack once if late."""

    def __init__(self, start_seconds: float, frame_seconds: float) -> None:
        self._frame_seconds = frame_seconds
        self._seconds = start_seconds
        self._since: float | None = None
        self._main = threading.get_ident()
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    def watch(self) -> None:
        """The guest owes an answer from now on."""
        self._since = time.monotonic()

    def rest(self) -> None:
        """The answer is given."""
        self._since = None

    def started(self) -> None:
        """From now on the deadline of a frame holds, no longer that of a start."""
        self._seconds = self._frame_seconds

    def _run(self) -> None:
        reported: float | None = None
        while True:
            time.sleep(min(self._seconds, self._frame_seconds) * (1 - WARNING_SHARE) / 2)
            since = self._since
            if since is None or since == reported:
                continue
            if time.monotonic() - since > WARNING_SHARE * self._seconds:
                reported = since
                frame = sys._current_frames().get(self._main)
                print(
                    f"watchdog: no answer for {time.monotonic() - since:.1f} s; it is here:",
                    file=sys.stderr,
                )
                traceback.print_stack(frame)
