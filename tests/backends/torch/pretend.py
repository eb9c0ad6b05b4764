"""A pretend accelerator: tensors that say they are on another device, computed by the CPU.

torch lets Python be the backend of its device type PrivateUse1. What a real device refuses is an
error here, at the line that asked for it: tensors of two devices in one operation, `.numpy()`,
float64 where MPS is pretended, an attention mask at an address that CUDA kernels cannot read. With
`without_syncs` so is every wait of the host for the device. With `shapes_only` tensors have no
numbers, so that models of any size cost nothing. Proves placement, not rounding.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.grad_mode import inference_mode
from torch.utils import backend_registration

NAME = "pretend"
MEMORY = 24 * 2**30
aten = torch.ops.aten
_WIDE = (torch.float64, torch.complex128)
_SYNCS = ("_local_scalar_dense", "nonzero", "equal", "unique", "masked_select")
_RESHAPES_IN_PLACE = (
    "squeeze_",
    "unsqueeze_",
    "t_",
    "transpose_",
    "resize_",
    "as_strided_",
    "set_",
)


Tape = list[tuple[str, tuple[tuple[int, ...], ...]]]  # operations, and the shapes of each


class WrongDeviceError(RuntimeError):
    """What the real thing would refuse."""


class HiddenSyncError(RuntimeError):
    """The host waited for the device where it must not."""


class Machine:
    """How the device behaves, and what was asked of it."""

    def __init__(self) -> None:
        self.is_mps = False
        self.forbids_syncs = False
        self.shapes_only = False
        self.has_wrong_attention = os.environ.get("PRETEND_FAULT") == "attention"
        self.n_kernels: Counter[str] = Counter()  # without views, which cost the device nothing
        self.n_syncs = 0
        self.n_copies = 0  # from the host
        self.tape: Tape | None = None  # of a capture

    def sync(self, what: str) -> None:
        self.n_syncs += 1
        if self.forbids_syncs:
            raise HiddenSyncError(f"{what} waits for the device")


machine = Machine()


class PretendTensor(Tensor):
    """On the pretend device; `host` holds the numbers."""

    host: Tensor

    @staticmethod
    def __new__(cls, host: Tensor) -> PretendTensor:
        if machine.is_mps and host.dtype in _WIDE:
            raise WrongDeviceError(f"{host.dtype} is not supported by the device")
        host = host.to("meta") if machine.shapes_only else host
        made: PretendTensor = Tensor._make_wrapper_subclass(
            cls,
            host.shape,
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            device=torch.device(NAME, 0),
            requires_grad=False,
        )
        made.host = host
        return made

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"PretendTensor({tuple(self.shape)}, {self.dtype})"

    def numpy(self, **_: Any) -> Any:
        raise TypeError(f"can't convert {self.device} tensor to numpy; use Tensor.cpu() first")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Whole, as devices have them: torch would take them apart in ways of its own.
        if func in _WHOLE or getattr(func, "__name__", "") == "lstm":
            if func is F.scaled_dot_product_attention:
                _check_mask(kwargs.get("attn_mask"))
                if machine.has_wrong_attention:
                    args = (*args[:2], args[2].flip(-2))
            return _compute(func, args, kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(func, args, kwargs or {})


_WHOLE = (F.scaled_dot_product_attention, F.rms_norm, torch.rms_norm, torch.stft)


def _check_mask(mask: Tensor | None) -> None:
    """CUDA's kernels read a mask by 16 bytes; torch copies one only if its strides say so."""
    if not isinstance(mask, PretendTensor) or not mask.is_floating_point():
        return
    is_copied = any(stride % 8 for stride in mask.stride()[:-1])
    if not is_copied and mask.host.storage_offset() * mask.element_size() % 16:
        raise WrongDeviceError("misaligned address: the attention mask is a view")


def _mapped(change: Callable[[Any], Any], given: Any) -> Any:
    """Tensors in tuples, lists and dictionaries, changed; torch's way is far slower."""
    kind = type(given)
    if kind is tuple or kind is list:
        return kind([_mapped(change, item) for item in given])
    if kind is dict:
        return {name: _mapped(change, item) for name, item in given.items()}
    return change(given) if isinstance(given, Tensor) else given


def _compute(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """By the CPU; what comes out is on the device."""
    name = getattr(func, "__name__", str(func))
    machine.n_kernels[name] += not _is_view(func)
    if machine.tape is not None:
        shapes = tuple(tuple(given.shape) for given in args if isinstance(given, Tensor))
        machine.tape.append((name, shapes))
    inner: dict[int, PretendTensor] = {}

    def to_host(tensor: Tensor) -> Tensor:
        if isinstance(tensor, PretendTensor):
            inner[id(tensor.host)] = tensor
            return tensor.host
        if tensor.dim():
            shape, where = tuple(tensor.shape), tensor.device
            raise WrongDeviceError(
                f"{name}: expected all tensors on {NAME}, not {shape} on {where}"
            )
        return tensor

    def to_device(tensor: Tensor) -> Tensor:
        found = inner.get(id(tensor))  # changed in place: the same one
        return PretendTensor(tensor) if found is None else found

    with torch._C.DisableTorchFunction():
        return _mapped(to_device, func(*_mapped(to_host, args), **_mapped(to_host, kwargs)))


@functools.cache
def _is_view(func: Any) -> bool:
    """Gives back a part of what it was given, and computes nothing."""
    schema = getattr(func, "_schema", None)
    alias = schema.returns[0].alias_info if schema and schema.returns else None
    return (alias is not None and not alias.is_write) or func is aten._unsafe_view.default


@functools.cache
def _is_composite(func: Any) -> bool:
    """Made of other operations, which are computed instead."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return bool(func.has_kernel_for_dispatch_key(key))


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """One operation with a tensor of the device among its arguments."""
    name = func._schema.name.partition("::")[2]
    if name in _RESHAPES_IN_PLACE:
        raise NotImplementedError(f"{name} of a pretend tensor")
    if name.startswith(_SYNCS):
        machine.sync(name)
    if func is aten._local_scalar_dense.default:
        return func(args[0].host)
    if func is aten._to_copy.default:
        return _copied(args[0], **kwargs)
    if func is aten.copy_.default:
        return _copy(*args[:2])
    if name in {"index", "index_put_"}:  # indices may be the host's
        args = _mapped(_moved, args)
    if "device" in kwargs:
        kwargs = {
            key: given for key, given in kwargs.items() if key not in ("device", "pin_memory")
        }
    return func.decompose(*args, **kwargs) if _is_composite(func) else _compute(func, args, kwargs)


def _copied(source: Tensor, device: Any = None, **kwargs: Any) -> Tensor:
    assert isinstance(source, PretendTensor)
    machine.n_kernels["_to_copy.default"] += 1
    kwargs.pop("pin_memory", None)
    host: Tensor = aten._to_copy.default(source.host, **kwargs)
    if device is None or torch.device(device).type == NAME:
        return PretendTensor(host)
    machine.sync("a copy to the host")
    return host


def _copy(target: Tensor, source: Tensor) -> Tensor:
    if not isinstance(target, PretendTensor):
        machine.sync("a copy to the host")
    elif not isinstance(source, PretendTensor):
        machine.n_copies += 1
        if machine.tape is not None:
            raise HiddenSyncError("a copy from the host cannot be captured")
    machine.n_kernels["copy_.default"] += 1
    hosts = (t.host if isinstance(t, PretendTensor) else t for t in (target, source))
    aten.copy_.default(*hosts)
    return target


def _moved(tensor: Tensor) -> Tensor:
    return tensor if isinstance(tensor, PretendTensor) else PretendTensor(tensor)


class _Module:
    """What `torch.get_device_module` finds."""

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def is_initialized() -> bool:
        return True

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def manual_seed_all(seed: int) -> None: ...

    @staticmethod
    def synchronize(_device: Any = None) -> None:
        machine.sync("synchronize")

    @staticmethod
    def mem_get_info(_device: Any = None) -> tuple[int, int]:
        return MEMORY, MEMORY

    @staticmethod
    def max_memory_allocated(_device: Any = None) -> int:
        return 2**20


_FACTORIES = (
    "empty.memory_format", "empty_strided", "arange", "arange.start", "arange.start_step",
    "linspace", "eye", "hann_window", "hann_window.periodic",
)  # fmt: skip
_registered: list[torch.library.Library] = []


def register() -> None:
    """Make the device known to torch, once a process."""
    if _registered:
        return
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for name in _FACTORIES:
        overload = name.partition(".")
        func = getattr(getattr(aten, overload[0]), overload[2] or "default")
        library.impl(name, _factory(func), "PrivateUse1")
    _registered.append(library)


def _factory(func: Any) -> Callable[..., PretendTensor]:
    def make(*args: Any, **kwargs: Any) -> PretendTensor:
        kwargs.pop("pin_memory", None)
        return PretendTensor(func(*args, **{**kwargs, "device": torch.device("cpu")}))

    return make


def enter() -> Callable[[], None]:
    """Let this process use the device; returns what undoes it."""
    register()
    # Inference tensors cannot be wrapped: of this pretence alone.
    was = inference_mode.__enter__, inference_mode.__exit__

    def begin(self: Any) -> None:
        self.without_grad = torch.no_grad()
        self.without_grad.__enter__()

    def end(self: Any, *error: Any) -> None:
        self.without_grad.__exit__(*error)

    inference_mode.__enter__, inference_mode.__exit__ = begin, end  # type: ignore[method-assign]
    run_thread = threading.Thread.run

    def run(self: threading.Thread) -> None:
        torch._C._set_only_lift_cpu_tensors(True)  # each thread has its own
        run_thread(self)

    threading.Thread.run = run  # type: ignore[method-assign]
    torch._C._set_only_lift_cpu_tensors(True)
    torch.__future__.set_overwrite_module_params_on_conversion(True)

    def leave() -> None:
        threading.Thread.run = run_thread  # type: ignore[method-assign]
        inference_mode.__enter__, inference_mode.__exit__ = was  # type: ignore[method-assign]
        torch._C._set_only_lift_cpu_tensors(False)
        torch.__future__.set_overwrite_module_params_on_conversion(False)

    return leave


@contextmanager
def pretending(*, mps: bool = False) -> Iterator[Machine]:
    """The device is there; with `mps`, it has no float64."""
    leave = enter()
    machine.__init__()  # type: ignore[misc]
    machine.is_mps = mps
    try:
        yield machine
    finally:
        leave()


@contextmanager
def capturing() -> Iterator[Tape]:
    """What can be captured and replayed: no wait, no copy from the host; gives all operations and
    their shapes, which must be the same the next time."""
    tape: Tape = []
    machine.tape = tape
    try:
        with without_syncs():
            yield tape
    finally:
        machine.tape = None


def as_shapes(module: nn.Module) -> None:
    """On the device, without its numbers."""
    for part in module.modules():
        stores: tuple[dict[str, Any], ...] = part._parameters, part._buffers
        for tensors in stores:
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = PretendTensor(tensor.detach().to("meta"))


@contextmanager
def without_syncs() -> Iterator[None]:
    """Every wait of the host is an error."""
    machine.forbids_syncs = True
    try:
        yield
    finally:
        machine.forbids_syncs = False
