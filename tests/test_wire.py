"""What goes over the wire comes out equal, types included; hostile bytes raise WireError only."""

from __future__ import annotations

import copy
import pickle
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("msgpack")
from agent_envs.group.protocol import Result
from agent_envs.group.wire import (
    SignedState,
    WireError,
    pack,
    pack_reply,
    pack_result,
    unpack,
    unpack_result,
)

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.binary()
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)  # fmt: skip


def types(value):
    if isinstance(value, list | tuple):
        return type(value), [types(v) for v in value]
    if isinstance(value, dict):
        return {k: types(v) for k, v in value.items()}
    return type(value)


@settings(max_examples=60, deadline=None)
@given(plain)
def test_any_plain_value_survives(value):
    found = unpack(pack(value))
    assert found == value
    assert types(found) == types(value)


@settings(max_examples=60, deadline=None)
@given(st.binary() | plain.map(lambda v: pack(v)[:-1]))
def test_rubbish_raises_wire_errors_only(data):
    with suppress(WireError):
        unpack(data)


def test_arrays_and_numpy_numbers_keep_dtype_and_shape():
    for array in (
        np.arange(24, dtype=np.uint8).reshape(2, 4, 3), np.zeros((0, 3), np.float32), np.array(5),
        np.asfortranarray(np.arange(6).reshape(2, 3)), np.array(["a", "\u6f22"]), np.array([True]),
    ):  # fmt: skip
        found = unpack(pack(array))
        assert found.dtype == array.dtype
        assert found.shape == array.shape
        assert (found == array).all()
    for number in (np.float64(0.1), np.int64(-3), np.bool_(True), np.float32(2)):
        found = unpack(pack({"x": number}))["x"]
        assert type(found) is type(number)
        assert found == number


def test_images_travel_as_raw_bytes():
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    assert len(pack(image)) < image.nbytes + 40


@pytest.mark.parametrize("value", [object(), lambda: None, {1, 2}, np.array([object()]), 1j])
def test_what_cannot_be_sent_fails_its_own_result(value):
    with pytest.raises(WireError, match="cannot be sent"):
        pack(value)
    fine, bad = pack_result(Result("seen")), pack_result(Result({"image": value}))
    reply = unpack(pack_reply({"id": 1, "results": [fine, bad], "actions": [value, "go"]}))
    assert reply["results"][0] == fine
    assert reply["actions"][1] == "go"
    for answer in (reply["results"][1], reply["actions"][0]):
        found = unpack_result(answer)
        assert found.truncated
        assert "cannot be sent" in found.error


def test_object_arrays_and_deep_nests_are_refused_when_read():
    import msgpack

    for dtype in ("|O", "|V8", "O", 3, None, "nonsense"):
        with pytest.raises(WireError):
            unpack(msgpack.packb(msgpack.ExtType(2, msgpack.packb([dtype, [1], b"12345678"]))))
    for code, data in ((9, b""), (1, b"\x01"), (2, b"\xc0"), (3, msgpack.packb(["<i8", b""]))):
        with pytest.raises(WireError):
            unpack(msgpack.packb(msgpack.ExtType(code, data)))
    with pytest.raises(WireError):
        unpack(b"\x91" * 100_000)
    nest = msgpack.packb([])
    for _ in range(3000):
        nest = msgpack.packb(msgpack.ExtType(1, nest))
    with pytest.raises(WireError):
        unpack(nest)


def test_signed_states_are_bytes_that_keep_their_signature():
    state = SignedState(b"AE1:x", b"mac")
    assert state == b"AE1:x"
    assert isinstance(state, bytes)
    for other in (copy.copy(state), copy.deepcopy([state])[0], pickle.loads(pickle.dumps(state))):
        assert (other, other.signature) == (b"AE1:x", b"mac")
    assert unpack(pack(state)) == b"AE1:x"
