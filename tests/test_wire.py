"""Bytes from the other side raise the protocol's errors, take bounded memory, and never hang."""

import contextlib
import socket
import struct
import threading
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox import wire
from sandbox.wire import Channel, Closed, FailureKind, Kind, Late, Malformed, Transition, WireError

CAPS = wire.learner_caps(action_bytes=12, artefact_bytes=100_000)


def pair(caps=CAPS):
    ours, theirs = socket.socketpair()
    return Channel(ours, caps), theirs


def header(kind, length, version=wire.VERSION, zero=0):
    return struct.pack("<BBHI", kind, version, zero, length)


def received(data, caps=CAPS, seconds=5.0):
    """Everything that a peer that sends `data` and closes makes of a channel, to its error."""
    channel, theirs = pair(caps)
    sender = threading.Thread(target=lambda: (_send(theirs, data), theirs.close()))
    sender.start()
    frames = []
    try:
        while True:
            frames.append(channel.receive(seconds))
    except WireError as error:
        return frames, error
    finally:
        channel.close()
        sender.join()


def _send(theirs, data):
    with contextlib.suppress(OSError):  # the channel may be closed by then, on purpose
        theirs.sendall(data)


def _send_often(channel, times, payload):
    for _ in range(times):
        channel.send(Kind.CONFIG, payload, seconds=0.2)


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_end_in_an_error_of_the_protocol(data):
    _, error = received(data)
    assert isinstance(error, Malformed | Closed)


FRAMES = st.lists(
    st.tuples(st.sampled_from(sorted(CAPS)), st.binary(max_size=300)).map(
        lambda each: (each[0], each[1][: CAPS[each[0]]])
    ),
    max_size=6,
)


@given(FRAMES, st.lists(st.integers(1, 50), max_size=8))
@settings(max_examples=100, deadline=None)
def test_frames_arrive_as_they_were_sent_however_they_are_cut(frames, cuts):
    data = b"".join(header(kind, len(payload)) + payload for kind, payload in frames)
    channel, theirs = pair()

    def trickle():
        rest = data
        for cut in cuts:
            theirs.sendall(rest[:cut])
            rest = rest[cut:]
        theirs.sendall(rest)

    sender = threading.Thread(target=trickle)
    sender.start()
    assert [tuple(channel.receive(5.0)) for _ in frames] == frames
    sender.join()
    channel.close()
    theirs.close()


@given(FRAMES, st.data())
@settings(max_examples=150, deadline=None)
def test_a_mutating_client_gets_nothing_but_errors_of_the_protocol(frames, data):
    """Valid conversations with bytes changed, removed or added: decoded as a host decodes them."""
    raw = bytearray(b"".join(header(kind, len(payload)) + payload for kind, payload in frames))
    for _ in range(data.draw(st.integers(0, 4))):
        if not raw:
            break
        at = data.draw(st.integers(0, len(raw) - 1))
        mutation = data.draw(st.sampled_from(["set", "cut", "insert"]))
        if mutation == "set":
            raw[at] = data.draw(st.integers(0, 255))
        elif mutation == "cut":
            del raw[at : at + data.draw(st.integers(1, 9))]
        else:
            raw[at:at] = data.draw(st.binary(min_size=1, max_size=9))
    arrived, error = received(bytes(raw))
    assert isinstance(error, Malformed | Closed)
    for frame in arrived:
        assert len(frame.payload) <= CAPS[frame.kind]
        for decode in (
            wire.decode_count,
            lambda payload: wire.decode_actions(payload, 1, 3),
            wire.decode_metrics,
            wire.decode_failure,
        ):
            with contextlib.suppress(Malformed):
                decode(frame.payload)


def test_a_declared_length_over_the_cap_is_refused_before_anything_is_allocated():
    channel, theirs = pair()
    tracemalloc.start()
    for length in (CAPS[Kind.EXPORT] + 1, 2**31, 2**32 - 1):
        theirs.sendall(header(Kind.EXPORT, length))
        with pytest.raises(Malformed, match=f"{length} bytes; 100000 at most"):
            channel.receive(5.0)
        channel, theirs = pair()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_large_frame_takes_memory_of_its_own_size_only():
    size = 50 << 20
    channel, theirs = pair({Kind.EXPORT: size})
    content = np.random.default_rng(0).bytes(size)
    sender = threading.Thread(target=lambda: theirs.sendall(header(Kind.EXPORT, size) + content))
    sender.start()
    assert channel.receive(30.0).payload == content
    sender.join()


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (b"", Closed, "closed"),
        (header(Kind.HELLO, 0)[:5], Closed, "closed"),
        (header(Kind.ACTION, 12) + b"1234", Closed, "closed"),
        (header(Kind.HELLO, 0, version=2), Malformed, "no frame header"),
        (header(Kind.HELLO, 0, zero=7), Malformed, "no frame header"),
        (header(99, 0), Malformed, "kind 99"),
        (header(Kind.CONFIG, 0), Malformed, "CONFIG, which has no place"),
        (header(Kind.HELLO, 1) + b"x", Malformed, "HELLO frame of 1 bytes; 0 at most"),
        (header(Kind.ACTION, 13) + b"x" * 13, Malformed, "13 bytes; 12 at most"),
        (b"\x80\x04\x95\x10\0\0\0\0\0\0\0pickle", Malformed, "no frame header"),
    ],
)
def test_each_way_to_break_a_frame_is_named(data, error, words):
    _, raised = received(data)
    assert isinstance(raised, error)
    assert words in str(raised)


def test_a_silent_peer_is_late_and_so_is_one_that_stops_in_the_middle():
    for sent in (b"", header(Kind.ACTION, 12), header(Kind.ACTION, 12) + b"1"):
        channel, theirs = pair()
        theirs.sendall(sent)
        began = time.monotonic()
        with pytest.raises(Late):
            channel.receive(0.2)
        assert 0.2 <= time.monotonic() - began < 1.0


def test_a_peer_that_drips_bytes_does_not_extend_its_deadline():
    channel, theirs = pair()
    stop = threading.Event()

    def drip():
        for byte in header(Kind.EXPORT, 90_000) + bytes(90_000):
            if stop.wait(0.02):
                return
            theirs.sendall(bytes([byte]))

    dripper = threading.Thread(target=drip)
    dripper.start()
    began = time.monotonic()
    with pytest.raises(Late):
        channel.receive(0.5)
    assert time.monotonic() - began < 1.5
    stop.set()
    dripper.join()


def test_a_peer_that_never_reads_is_late():
    channel, _theirs = pair()
    with pytest.raises(Late, match="did not read"):
        _send_often(channel, 1000, bytes(100_000))


def test_bytes_that_nobody_asked_for_are_seen_without_waiting():
    channel, theirs = pair()
    began = time.monotonic()
    assert not channel.has_unasked_bytes()
    assert time.monotonic() - began < 0.1
    theirs.sendall(header(Kind.HELLO, 0) + header(Kind.IMPORTED, 0))
    assert channel.has_unasked_bytes()
    assert channel.receive(1.0).kind is Kind.HELLO
    assert channel.has_unasked_bytes()  # in our own buffer by now
    assert channel.receive(1.0).kind is Kind.IMPORTED
    assert not channel.has_unasked_bytes()
    theirs.close()
    assert not channel.has_unasked_bytes()  # an end is no bytes: the next receive tells


def test_sending_to_a_peer_that_is_gone_is_closed():
    channel, theirs = pair()
    theirs.close()
    with pytest.raises(Closed):
        _send_often(channel, 2, b"")


def test_passed_file_descriptors_are_dropped():
    channel, theirs = pair()
    with open("/dev/null") as file:  # noqa: PTH123 - a descriptor is what is wanted
        socket.send_fds(theirs, [header(Kind.HELLO, 0)], [file.fileno()] * 10)
        assert channel.receive(5.0).kind is Kind.HELLO


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_actions_must_be_finite_and_of_the_exact_size(bad):
    good = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.float32)
    assert np.array_equal(wire.decode_actions(good.tobytes(), 2, 3), good)
    spoilt = good.copy()
    spoilt[1, 2] = bad
    with pytest.raises(Malformed, match=f"component 2 is {bad}"):
        wire.decode_actions(spoilt.tobytes(), 2, 3)
    for payload in (b"", good.tobytes()[:-1], good.tobytes() + b"x", good[:1].tobytes()):
        with pytest.raises(Malformed, match="24"):
            wire.decode_actions(payload, 2, 3)


@given(
    st.dictionaries(
        st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=10),
        st.floats(allow_nan=False, allow_infinity=False),
        max_size=wire.MAX_METRICS,
    )
)
def test_metrics_survive_the_way(metrics):
    assert wire.decode_metrics(wire.encode_metrics(metrics)) == metrics


def test_metrics_that_are_not_finite_are_left_out_and_names_are_made_visible():
    raw = wire.encode_metrics({"a": float("nan"), "b": float("inf"), "\x1b[2J\n": 1.0})
    assert wire.decode_metrics(raw) == {"\\x1b[2J\\n": 1.0}


def test_last_words_keep_the_end_of_a_long_text_and_cannot_steer_a_terminal():
    text = "x" * 100_000 + "\x1b]0;owned\x07\u202e end\n"
    raw = wire.encode_failure(FailureKind.EXCEPTION, text)
    assert len(raw) <= wire.MAX_FAILURE_BYTES
    kind, _, words = wire.decode_failure(raw)
    assert kind is FailureKind.EXCEPTION
    assert words.endswith("\\x1b]0;owned\\x07\\u202e end\n")


@pytest.mark.parametrize(("terminated", "truncated"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_a_transition_survives_the_way(terminated, truncated):
    generator = np.random.default_rng(0)
    next_obs = generator.random(4, dtype=np.float32)
    fresh = generator.random(4, dtype=np.float32)
    sent = Transition(
        generator.random(2, dtype=np.float32),
        0.1,
        bool(terminated),
        bool(truncated),
        next_obs,
        fresh if terminated or truncated else next_obs,
    )
    got = wire.decode_transition(wire.encode_transition(sent), 4, 2)
    assert got.reward == 0.1
    assert (got.terminated, got.truncated) == (bool(terminated), bool(truncated))
    for ours, theirs in zip(sent[0:1] + sent[4:], got[0:1] + got[4:], strict=True):
        assert np.array_equal(ours, theirs)
