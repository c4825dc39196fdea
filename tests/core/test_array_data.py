"""Arrays whose data cannot be read are refused wherever they are touched; what would end the process has its own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sightglass.core.errors import UnreadableError
from sightglass.core.program_values.array_data import check_data, plain_array
from sightglass.core.program_values.copier import freeze, snapshot
from sightglass.core.values import array_kind, to_host

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs JAX")

TOUCHES = """
import os
import numpy as np
import sightglass as sg
from sightglass.core.program_values.copier import sendable

QUERIES = (
    "batch.v", "batch.v.mean()", "batch.v + 1", "batch.v[0]", "batch.v.T", "[batch.v, 1]", "norm(batch.v)", "batch.d",
    "topk(batch.v, 1)", "histogram(batch.v)", "batch.d.w.mean()", "batch.d.map(lambda n, w: w.sum())",
    "on('batch').map(lambda b: b.v).mean(every=1)", "first(batch.v)", "sample(batch.v, 1)", "median(batch.l[0])",
    "len(batch.v) + batch.v.sum()", "batch.d.map(lambda n, w: [w * 2, 1])", "batch.l + 1",
    "on('batch').where(lambda b: b.v).map(lambda b: b.v)",
)

def touch(case, v):
    run = sg.init(case, budget=None)
    client = sg.connect(run)
    streams = [client.stream(query) for query in QUERIES]
    for step in range(4):
        run.observe("batch", step=step, v=v, d={"w": v}, l=[v])
    for query, stream in zip(QUERIES, streams):
        try:
            stream.wait(5, timeout_s=20)
            raise AssertionError(f"{query} was answered")
        except sg.SightglassError as error:
            print(f"{case}: {query}: {error}")
    run.observe("kept", snapshot=True, v=v)
    run.log({"logged": v, "nested": {"tensor": sg.Tensor(v), "histogram": sg.Histogram(v)}})
    print(f"{case}: sent: {sendable({'x': v}).value}")
    client.describe()
    run.close()
    print(f"{case}: over", flush=True)
"""

TORCH = """
import torch
freed, view, shorter, parameter = torch.ones(3), torch.ones(8)[2:5], torch.ones(8), torch.nn.Parameter(torch.ones(3))
for tensor in (freed, view, parameter):
    tensor.untyped_storage().resize_(0)
shorter.untyped_storage().resize_(8)
for case in ("freed", "view", "shorter", "parameter"):
    touch(case, globals()[case])
touch("meta", torch.ones(3, device="meta"))
touch("sparse", torch.eye(3).to_sparse())
touch("nested", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
touch("quantized", torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8))
"""

JAX = """
import jax, jax.numpy as jnp
deleted, donated = jnp.ones(3), jnp.ones(3)
deleted.delete()
jax.jit(lambda x: x + 1, donate_argnums=0)(donated)
touch("deleted", deleted)
touch("donated", donated)
"""

NUMPY = """
from multiprocessing import shared_memory
closed = np.memmap("closed", "f8", "w+", shape=8)
view = np.asarray(closed)[2:]
closed._mmap.close()
touch("closed", closed)
touch("view", view)
cut = np.memmap("cut", "f8", "w+", shape=90_000)
os.truncate("cut", 8)
touch("cut", cut)
memory = shared_memory.SharedMemory(create=True, size=80)
shared = np.ndarray(3, buffer=memory.buf)
memory.close()
memory.unlink()
touch("shared", shared)
"""

REASONS = {
    "torch": (TORCH, {
        "freed": "its storage was freed", "view": "its storage was freed", "shorter": "its storage was freed",
        "parameter": "its storage was freed", "meta": "on the device 'meta'",
        "sparse": "got a sparse one (sparse_coo). Offer x.to_dense()", "nested": "got a nested one. Offer its parts",
        "quantized": "got a quantized one. Offer x.dequantize()",
    }),
    "jax": (JAX, dict.fromkeys(("deleted", "donated"), "it was donated to a compiled function, or deleted")),
    "numpy": (NUMPY, {
        "closed": "the map, or the shared memory, was closed", "view": "the map, or the shared memory, was closed",
        "cut": "its file was cut", "shared": "the map, or the shared memory, was closed",
    }),
}  # fmt: skip


@pytest.mark.parametrize("library", REASONS)
def test_memory_that_is_gone_is_refused_and_never_touched(library: str, tmp_path: Path) -> None:
    pytest.importorskip(library)
    code, reasons = REASONS[library]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TOUCHES + code],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    lines = [line.partition(": ")[::2] for line in done.stdout.splitlines()]
    assert [case for case, said in lines if said == "over"] == [*reasons]
    wrong = [(case, said) for case, said in lines if said != "over" and reasons[case] not in said]
    assert not wrong
    assert max(len(said) for _, said in lines) < 400


@needs_torch
def test_what_can_be_read_passes() -> None:
    import torch

    base = torch.arange(24.0).reshape(2, 3, 4)
    for tensor in (base, base.mT, base[1:, ::2, 1], base.flip(0), base[:0], torch.tensor(1.0), base.expand(5, 2, 3, 4),
                   torch.empty(0), base.conj(), torch.nn.Parameter(base), base.to(torch.bfloat16),
                   torch.as_strided(base, (3, 3), (1, 2), 4)):  # fmt: skip
        check_data(tensor, "torch")
        assert plain_array(tensor, "torch") is tensor
    assert to_host(base.to(torch.float8_e4m3fn)).dtype == np.float32
    for array in (np.ones(3), np.ones((3, 4))[1:, 0], np.float64(1), np.broadcast_to(1.0, (3, 4))):
        check_data(array, "numpy")


@needs_torch
def test_a_wrapper_is_asked_for_what_it_wraps() -> None:
    import torch

    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*[arg.inner if isinstance(arg, Wrapper) else arg for arg in args], **(kwargs or {}))

    wrapper = Wrapper(torch.ones(3))
    assert plain_array(wrapper, "torch") is wrapper
    wrapper.inner.untyped_storage().resize_(0)
    with pytest.raises(UnreadableError, match="freed"):
        check_data(wrapper, "torch")


@needs_torch
def test_a_fake_tensor_has_no_data() -> None:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(3)
    with pytest.raises(UnreadableError, match=r"float32\[3\].*FakeTensor"):
        check_data(fake, "torch")


@needs_torch
def test_a_tensor_within_a_transformation_has_no_data() -> None:
    import torch

    def inside(x):
        with pytest.raises(
            UnreadableError,
            match=r"float32\[3\].*torch\.func",
        ):
            check_data(x, "torch")
        return x.sum()

    torch.func.vmap(inside)(torch.ones(2, 3))
    torch.func.grad(inside)(torch.ones(3))


@needs_jax
def test_traced_arrays_are_not_asked() -> None:
    import jax

    def inside(x):
        check_data(x, "jax")
        return x

    assert float(jax.jit(inside)(1.0)) == 1.0


@needs_torch
def test_methods_of_tensor_classes_of_the_program_are_not_called() -> None:
    import torch

    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise AssertionError("the program's code was run")

    with torch._C.DisableTorchFunctionSubclass():
        loud = torch.ones(3).as_subclass(Loud)
    plain = plain_array(loud, "torch")
    assert type(plain) is torch.Tensor
    assert plain.sum() == 3


def test_methods_of_array_classes_of_the_program_are_not_called() -> None:
    class Loud(np.ndarray):
        def __array_finalize__(self, other):
            pass

        def mean(self, *args, **kwargs):
            raise AssertionError("the program's code was run")

        __array_ufunc__ = copy = __getitem__ = __len__ = __array_function__ = mean  # type: ignore[assignment]

    plain = plain_array(np.ones(3).view(Loud), "numpy")
    assert type(plain) is np.ndarray
    assert plain.mean() == 1


@needs_torch
def test_a_snapshot_loses_only_what_is_gone() -> None:
    import torch

    gone = torch.ones(3)
    gone.untyped_storage().resize_(0)
    kept = freeze({"state": {"gone": gone, "there": torch.ones(2)}}, "kept")["state"]
    assert kept.n_lost == 1
    assert kept.first is not None
    assert kept.first.path == "kept.state['gone']"
    assert "FSDP" in kept.first.why
    assert torch.equal(kept.value["there"], torch.ones(2))
    with pytest.raises(UnreadableError, match=r"float32\[3\].*memory"):
        snapshot(gone)
    assert array_kind(gone) == "torch"
