"""Frames: whatever pieces they arrive in, the messages are the same, and rubbish is seen to be rubbish."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrl_envs.host.wire import Received, WireError, frame, read_message

MESSAGES = st.lists(st.tuples(st.integers(), st.text(max_size=30), st.binary(max_size=200)), max_size=6)


@given(messages=MESSAGES, cuts=st.lists(st.integers(1, 64), min_size=1))
def test_messages_survive_any_cuts(messages: list[Any], cuts: list[int]) -> None:
    data, received, found, turn = b"".join(map(frame, messages)), Received(), [], 0
    while data:
        size = cuts[turn % len(cuts)]
        received.feed(data[:size])
        found += list(received.messages())
        data, turn = data[size:], turn + 1
    assert found == messages


@pytest.mark.parametrize("data", [b"\xff" * 64, struct.pack("!Q", 3) + b"abc"])
def test_rubbish_is_an_error(data: bytes) -> None:
    received = Received()
    received.feed(data)
    with pytest.raises(WireError):
        list(received.messages())


def test_a_closed_socket_ends_the_reading() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(frame(("x", 1)) + b"\0\0")
        assert read_message(theirs) == ("x", 1)
        ours.close()
        with pytest.raises(EOFError):
            read_message(theirs)
