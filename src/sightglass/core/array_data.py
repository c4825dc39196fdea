"""Whether the data of a program's array can be read, and as which class.

`check_data` is asked before anything touches the data of an array: queries, snapshots, `log`, `record`. Reading memory
that was freed ends the process, and some layouts answer with pages of a library's own words.

It finds what was freed: a tensor's storage, as FSDP does between the uses of a parameter; JAX buffers that were donated
or deleted; memory maps and shared memory that were closed, or whose file was cut. It also finds tensors without data
(meta, fake) and those that are not dense (sparse, quantized, nested). It cannot see memory that another thread frees
meanwhile, or that a tensor borrows from another library.

`plain_array` returns an array as its library's own class, so that methods of the program's subclasses are not called.
"""

from __future__ import annotations

import mmap
import sys
from functools import lru_cache
from typing import Any, Final

import numpy as np

from .errors import UnreadableError
from .guarded import FAILURES, class_name, instance_dict, message
from .own_pieces import is_traced, own_piece

Array = Any
"""An array of any library."""

STAND_INS: Final = (
    "BatchedTensor",
    "TensorWrapper",
)  # what PyTorch calls the tensors inside vmap, and inside grad and jvp
MAX_OWNERS: Final = 8  # of a NumPy array's memory: views refer to the array that owns it, so chains are short


def check_data(array: Array, kind: str) -> None:
    """Refuse an array whose data cannot be read.

    Args:
        array: The array.
        kind: Its library, as `values.array_kind` names it.

    Raises:
        UnreadableError: Its memory was freed, it has no data, or it is not dense.
    """
    if kind == "numpy":
        if array.base is not None:
            _check_owner(array)
    elif kind == "torch":
        _check_tensor(array)
    elif kind == "jax" and not is_traced(array) and array.is_deleted():
        shape = ", ".join(map(str, array.shape))
        raise _freed(f"a JAX array {array.dtype}[{shape}]", "it was donated to a compiled function, or deleted")


def plain_array(array: Array, kind: str) -> Array:
    """Return an array as its library's own class, without running code of a subclass. Errors as in `check_data`.

    Of an array over several processes, it is this process's piece. Tensor subclasses with a `__torch_dispatch__` other
    than DTensor have no data of their own, and stay as they are.
    """
    if kind == "jax":
        check_data(array, kind)
        return own_piece(array, kind)
    array = own_piece(array, kind)
    cls: type = type(array)
    if kind == "numpy" and cls is not np.ndarray:
        array = np.ndarray.view(array, np.ndarray)
    elif kind == "torch" and _overrides(cls):
        torch = sys.modules["torch"]
        with torch._C.DisableTorchFunctionSubclass():
            array = torch.Tensor.as_subclass(torch.Tensor.detach(array), torch.Tensor)
    check_data(array, kind)
    return array


# NumPy


def _check_owner(array: Array) -> None:
    """Refuse an array over a memory map that was closed, or whose file is shorter now."""
    owner = array.base
    for _ in range(MAX_OWNERS):
        if isinstance(owner, mmap.mmap):
            what = f"an array of dtype {array.dtype} over a memory map"
            if owner.closed:
                raise _freed(what, "the map, or the shared memory, was closed")
            if owner.size() < len(owner):
                raise _freed(what, "its file was cut")
            return
        if issubclass(type(owner), np.ndarray):
            owner = np.ndarray.base.__get__(owner)
        else:
            return


# PyTorch


def _check_tensor(tensor: Array) -> None:
    try:
        n_bytes = tensor.untyped_storage().nbytes()
        if tensor.is_quantized:
            raise _not_dense("a quantized one", "x.dequantize()")
        if tensor.is_nested:
            raise _not_dense("a nested one", "its parts")
        if n_bytes != tensor.nbytes and n_bytes < _n_bytes_needed(tensor):
            raise _freed(f"a tensor {_dtype_and_shape(tensor)}", "its storage was freed, as FSDP does between uses")
        if tensor.is_meta:
            raise UnreadableError(f"Expected a tensor with data, got {_dtype_and_shape(tensor)} on the device 'meta'")
    except UnreadableError:
        raise
    except FAILURES as error:  # it has no storage
        raise _without_storage(tensor, error) from None
    cls: type = type(tensor)
    if not _is_usual(cls):
        _check_wrapper(tensor)


def _n_bytes_needed(tensor: Array) -> int:
    """Return how large the storage of a tensor has to be."""
    if not tensor.numel():
        return 0
    last: int = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int((tensor.storage_offset() + last + 1) * tensor.itemsize)


def _check_wrapper(tensor: Array) -> None:
    """Refuse a tensor of another class that has no data, or wraps tensors without."""
    if tensor.untyped_storage().device.type == "meta":
        raise UnreadableError(f"Expected a tensor with data, got {_dtype_and_shape(tensor)} of {class_name(tensor)}")
    for inner in instance_dict(tensor).values():
        if issubclass(type(inner), sys.modules["torch"].Tensor) and inner is not tensor:
            _check_tensor(inner)


def _without_storage(tensor: Array, error: BaseException) -> UnreadableError:
    """Return the error for a tensor that has no storage."""
    layout = str(tensor.layout).removeprefix("torch.")
    if "sparse" in layout:
        return _not_dense(f"a sparse one ({layout})", "x.to_dense()")
    if layout != "strided":
        return _not_dense(f"one of layout {layout}", "x.to_dense()")
    reason = message(error).partition("\n")[0]
    if any(name in reason for name in STAND_INS):
        return UnreadableError(
            f"Expected a tensor with data, got {_dtype_and_shape(tensor)} inside a transformation of torch.func, "
            "such as vmap or grad. Offer what the transformed function returns"
        )
    return UnreadableError(f"Expected a tensor with data, got {_dtype_and_shape(tensor)} without: {reason}")


def _dtype_and_shape(tensor: Array) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}[{', '.join(map(str, tensor.shape))}]"


@lru_cache(maxsize=1024)
def _is_usual(cls: type) -> bool:
    return cls.__module__ in ("torch", "torch.nn.parameter")


@lru_cache(maxsize=1024)
def _overrides(cls: type) -> bool:
    """Return whether a class is the program's own, over tensors with data of their own."""
    dispatch: Any = getattr(cls, "__torch_dispatch__", None)
    return cls.__module__.partition(".")[0] != "torch" and "disabled" in getattr(dispatch, "__name__", "")


# The errors


def _freed(what: str, why: str) -> UnreadableError:
    return UnreadableError(f"Expected an array with data, got {what} whose memory is gone: {why}")


def _not_dense(what: str, instead: str) -> UnreadableError:
    return UnreadableError(f"Expected a dense tensor, got {what}. Offer {instead}")
