"""`save` and `load`: what is read is what was written, and a damaged file is never taken for another."""

from __future__ import annotations

from collections import namedtuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax import lax

import sightglass.jax as sgx
from sightglass.core.errors import DamagedError, StorageError

DTYPES = ["bool", "int4", "int8", "uint32", "int64", "float16", "bfloat16", "float8_e4m3fn", "float64", "complex64"]
Point = namedtuple("Point", "x y")


def same(got, wanted):
    got, wanted = (jax.tree.leaves_with_path(logs) for logs in (got, wanted))
    assert [jax.tree_util.keystr(path) for path, _ in got] == [jax.tree_util.keystr(path) for path, _ in wanted]
    for (path, a), (_, b) in zip(got, wanted, strict=True):
        assert (type(a), a.dtype, a.shape) == (np.ndarray, b.dtype, b.shape), path
        assert a.tobytes() == np.asarray(b).tobytes(), path


def program(x):
    def body(c, i):
        sgx.log(
            {"loss": c, "half": jnp.bfloat16(c), "net": {"a": {"b": c}, "list": [c, (i, c > 2)]}}, step=i, epoch=0.5
        )
        lax.cond(i % 2 == 0, lambda: sgx.log({"even": jnp.full((2, 3), i)}, step=i) and None, lambda: None)
        jax.vmap(lambda lane: sgx.log({"lanes": lane}) and None, axis_name="lane")(jnp.arange(3))
        return c + 1, None

    return lax.scan(body, x, jnp.arange(5))[0]


def test_the_logs_of_a_program_come_back(tmp_path):
    options = {"reduce": {"even": sgx.last_k(2), "lanes": sgx.histogram(4)}}
    for kept in ({}, options):
        _, logs = sgx.spool(program, **kept)(1.0)
        sgx.save(tmp_path / "a", logs)
        loaded = sgx.load(tmp_path / "a")
        same(loaded, logs)
        assert jax.tree.structure(loaded) == jax.tree.structure(logs)
        assert str(loaded) == str(logs)
    assert loaded.events().__next__().steps == {"step": 0, "epoch": 0.5}
    (histogram,) = (event.value for event in loaded.events() if event.tag == "lanes")
    assert [one.total for one in histogram] == [5, 5, 5]


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_are_kept(tmp_path, name):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    logs = sgx.logdict(
        {
            "x": np.arange(6).reshape(2, 3).astype(dtype),
            "large": np.zeros((2, 5000), dtype),
            "no": np.zeros((0, 2), dtype),
        },
        {"step": {"x": np.int32([3, 2**31 - 1])}, "time": {"x": np.float64([0.1, np.nan])}},
        valid={"x": np.array([True, False])},
        n_dropped={"x": np.int32(7)},
    )
    sgx.save(str(tmp_path / "a"), logs)
    same(sgx.load(tmp_path / "a"), logs)


@given(
    values=st.dictionaries(
        st.text(max_size=5).filter(lambda tag: tag.isprintable()),
        hnp.arrays(st.sampled_from(["<f4", "<i8", "|b1"]), hnp.array_shapes(max_dims=3, min_side=0)),
        max_size=4,
    )
)
def test_any_tags_and_shapes(values, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "a"
    logs = sgx.logdict(values)
    sgx.save(path, logs)
    same(sgx.load(path), logs)
    assert list(sgx.load(path)) == list(values)


def test_named_tuples_keep_their_fields_and_a_file_is_replaced(tmp_path):
    one = np.ones(1)
    sgx.save(tmp_path / "a", sgx.logdict({"old": one}))
    sgx.save(tmp_path / "a", sgx.logdict({"p": Point(one, 2 * one)}))
    loaded = sgx.load(tmp_path / "a")
    assert (list(loaded), loaded["p"].y.tolist()) == (["p"], [2])
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_traced_logs_are_refused():
    with pytest.raises(TypeError, match="the tracer"):
        jax.jit(lambda x: sgx.save("never", sgx.log({"x": x})) or x)(1.0)


def test_damaged_and_other_files_are_refused(tmp_path):
    sgx.save(tmp_path / "a", sgx.logdict({"x": np.arange(9.0), "y": np.zeros(3000)}))
    data = (tmp_path / "a").read_bytes()
    flips = [bytes([*data[:i], data[i] ^ 1, *data[i + 1 :]]) for i in range(0, len(data), 1 + len(data) // 97)]
    cuts = [data[:n] for n in (0, 1, 20, len(data) // 2, len(data) - 1)]
    for wrong in (*flips, *cuts, b"text", b"\x93NUMPY" + bytes(99)):
        (tmp_path / "b").write_bytes(wrong)
        with pytest.raises((StorageError, DamagedError), match="b"):
            sgx.load(tmp_path / "b")
    for call in (lambda: sgx.load(tmp_path / "none"), lambda: sgx.save(tmp_path / "no" / "a", sgx.logdict({}))):
        with pytest.raises(StorageError, match=r"none|no/a"):
            call()
