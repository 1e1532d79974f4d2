"""NumPy arrays and torch CPU tensors as the library's tensors, without copies wherever the memory allows it."""
from __future__ import annotations

import sys
from typing import Any, NoReturn

import numpy as np

from . import _native

_NUMPY = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3", "int32": "i32"}
_TORCH = {"torch.float32": "f32", "torch.float16": "f16", "torch.bfloat16": "bf16", "torch.float8_e4m3fn": "f8e4m3",
          "torch.int32": "i32"}


def is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _refuse(name: str, reason: str) -> NoReturn:
    raise TypeError(f"{name}: {reason}")


def _torch_view(name: str, array: Any) -> tuple[Any, str]:
    if array.device.type != "cpu":
        _refuse(name, f"is on {array.device}, expected a CPU tensor; call .cpu(), or use the C API with OpenCL buffers")
    if array.layout is not sys.modules["torch"].strided:
        _refuse(name, f"has layout {array.layout}, expected a strided tensor")
    dtype = _TORCH.get(str(array.dtype))
    if dtype is None:
        _refuse(name, f"is {array.dtype}, expected one of {', '.join(_TORCH)}")
    array = array.detach()
    array = array.resolve_neg() if hasattr(array, "resolve_neg") else array
    return array, dtype


def _numpy_view(name: str, array: Any) -> tuple[np.ndarray, str]:
    if not isinstance(array, np.ndarray):
        _refuse(name, f"is a {type(array).__name__}, expected a NumPy array or a torch tensor")
    dtype = _NUMPY.get(array.dtype.name)
    if dtype is None or not array.dtype.isnative:
        _refuse(name, f"is {array.dtype}, expected native {', '.join(_NUMPY)}")
    return array, dtype


def _element_strides(array: Any) -> list[int]:
    if is_torch(array):
        return list(array.stride())
    return [stride // array.itemsize for stride in array.strides]


def _usable(shape: list[int], strides: list[int], array: Any) -> bool:
    """Whether the library can walk it: last dimension dense, others neither backwards nor standing still."""
    if not is_torch(array) and any(stride % array.itemsize for stride in array.strides):
        return False
    if not is_torch(array) and not array.flags.aligned:
        return False
    if shape and shape[-1] > 1 and strides[-1] != 1:
        return False
    return all(stride > 0 for size, stride in zip(shape[:-1], strides[:-1]) if size > 1)


def view(name: str, array: Any) -> tuple[_native.Tensor, Any]:
    """The library's view of an input, and what must be kept alive while it is used.

    Strides that the library cannot walk (a transposed last dimension, negative or zero strides) cost one copy.
    """
    array, dtype = _torch_view(name, array) if is_torch(array) else _numpy_view(name, array)
    shape, strides = list(array.shape), _element_strides(array)
    if not 1 <= len(shape) <= 4:
        _refuse(name, f"has {len(shape)} dimensions, expected 1 to 4")
    if not _usable(shape, strides, array):
        array = array.contiguous() if is_torch(array) else np.ascontiguousarray(array)
        strides = _element_strides(array)
    # The library reads a stride of 0 as "dense": what stands alone may say so.
    strides = [stride if size > 1 else 0 for size, stride in zip(shape, strides)]
    tensor = _native.Tensor(dtype=_native.DTYPES[dtype], rank=len(shape))
    tensor.host = array.data_ptr() if is_torch(array) else array.ctypes.data
    tensor.shape[:len(shape)] = shape
    tensor.stride[:len(shape)] = strides
    return tensor, array


def empty(like: Any, dtype: str, *shape: int) -> Any:
    """A new output in the framework of `like`."""
    if is_torch(like):
        torch = sys.modules["torch"]
        types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32}
        return torch.empty(shape, dtype=types[dtype])
    if dtype == "bf16":
        _refuse("output", "NumPy has no bfloat16; pass torch tensors, or a problem of f32 or f16")
    return np.empty(shape, {"f32": np.float32, "f16": np.float16, "i32": np.int32}[dtype])


def int32(name: str, values: Any) -> np.ndarray:
    """A host array of int32; every value must fit."""
    array = np.asarray(values.cpu() if is_torch(values) else values)
    if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or array.size == 0):
        _refuse(name, f"is {array.dtype} of {array.ndim} dimensions, expected a list of integers")
    if array.size and (array.min() < -2**31 or array.max() >= 2**31):
        _refuse(name, "has values that do not fit in 32 bits")
    return np.ascontiguousarray(array, np.int32)
