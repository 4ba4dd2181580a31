"""One file over HTTP, going on where an earlier attempt stopped."""

import http.client
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from harness.datasets.places import Show

TIMEOUT_SECONDS = 30.0
"""Without a byte: then the address does not answer, or has stopped to."""
ATTEMPTS = 20
"""At one address, each of which must bring more than the one before."""
CHUNK_BYTES = 1 << 20

_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")


class Failed(Exception):
    """The address does not give the file; the message says why."""


class NoAnswer(Failed):
    """Nobody is there to give anything."""


class _Cut(Exception):
    """The connection ended before its time."""


def download(url: str, partial: Path, show: Show, timeout: float = TIMEOUT_SECONDS) -> None:
    """Bring the file `partial`, which may hold the beginning, to the whole of what is at `url`.

    What arrived stays in `partial`, whatever happens. Raises Failed; OSError of the disk.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise Failed("not an address of http or https")
    for _ in range(ATTEMPTS):
        before = _size(partial)
        try:
            total = _attempt(url, partial, show, timeout)
        except _Cut as cut:
            reason = f"{cut} after {_size(partial):,} bytes"
        else:
            if total in (None, _size(partial)):
                return
            reason = f"{_size(partial):,} bytes came, it has {total:,}"
        if _size(partial) <= before:
            break
    raise Failed(reason)


def _attempt(url: str, partial: Path, show: Show, timeout: float) -> int | None:
    """One connection. How many bytes the whole file has, where the server says so."""
    had = _size(partial)
    # Not compressed on the way: lengths and ranges are then those of the file.
    headers = {"User-Agent": "touchstone", "Accept-Encoding": "identity"}
    if had:
        headers["Range"] = f"bytes={had}-"
    try:
        response = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=timeout
        )
    except urllib.error.HTTPError as error:
        with error:
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and had:
                return _beyond_the_end(error.headers["Content-Range"], url, partial, show, timeout)
        raise Failed(f"HTTP {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoAnswer(str(getattr(error, "reason", None) or error)) from error
    with response:
        start, total = 0, response.headers["Content-Length"]
        if response.status == http.HTTPStatus.PARTIAL_CONTENT:
            match = _RANGE.fullmatch(response.headers["Content-Range"] or "")
            if match is None or match[1] is None:
                raise Failed("it answers with a part of the file and does not say which")
            start, total = int(match[1]), match[2]
        if start not in (0, had):
            raise Failed(f"asked for what follows byte {had:,}, it answers from {start:,}")
        whole = int(total) if total and total.isdigit() else None
        with partial.open("ab" if start else "wb") as file:
            while chunk := _read(response):
                file.write(chunk)
                show(_progress(url, file.tell(), whole))
    return whole


def _beyond_the_end(
    content_range: str | None, url: str, partial: Path, show: Show, timeout: float
) -> int | None:
    """There is nothing after what we have: it is all, or it is not of this file."""
    match = _RANGE.fullmatch(content_range or "")
    if match is not None and match[2] == str(_size(partial)):
        return _size(partial)
    partial.unlink()
    return _attempt(url, partial, show, timeout)


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(CHUNK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise _Cut(f"the connection broke ({error})") from error


def _progress(url: str, have: int, whole: int | None) -> str:
    name = url.rpartition("/")[2]
    of = "" if whole is None else f" of {whole / 1e6:,.1f}"
    return f"{name}: {have / 1e6:,.1f}{of} MB"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
