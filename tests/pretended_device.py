"""A graphics processor that is pretended: the processor as a second device, named ``cuda:0``.

    with PretendedDevice() as gpu:
        fgl.run(method, [graph.to("cuda") for graph in graphs], num_rounds=2)
    assert not gpu.mixed
    print(gpu.report())

A tensor is on the pretended device if its storage is tagged; the tensors themselves are plain, so
all of torch works on them. A function mode takes `cuda` out of what is called, a dispatch mode sees
every operation below autograd and `vmap`, tags what it makes, raises where CUDA refuses operands of
two devices, and counts the places where the host waits for the device. Streams and graphs are
those of `pretended_streams`. Not emulated: the order of additions of its kernels, limits of its
libraries, memory, time, and gradients that flow from one device to the other.

    PYTHONPATH=tests python -m pretended_device benchmarks/speed/rounds.py --device cuda
    PYTHONPATH=tests python -m pretended_device -m pytest tests/test_cuda.py
"""

import importlib
import runpy
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any

import torch
from pretended_streams import Capture, Event, Graph, NotCaptured, Stream
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
ROOT = Path(__file__).parents[1]
PASSED_OVER = f"{ROOT}/fgl/transfer.py"  # whoever calls it has a reason
WATCHED = tuple(f"{ROOT / folder}/" for folder in ("fgl", "examples", "benchmarks"))
SPARSE = {torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}
REAL_DEVICE, REAL_GENERATOR = torch._C.TensorBase.device, torch.Generator

WAITS = {  # after these the host knows a number that the device has made
    "_local_scalar_dense", "nonzero", "masked_select", "equal", "bincount", "histc", "multinomial",
    "_unique2", "unique_dim", "unique_consecutive", "_linalg_check_errors", "linalg_lstsq",
}  # fmt: skip
INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
SCALARS = {"masked_fill", "masked_fill_", "where", "fill", "fill_", "index_fill", "index_fill_"}
NOT_DETERMINISTIC = {"cumsum", "cumsum_", "cumprod", "histc", "kthvalue", "_ctc_loss"}
NEW = ("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor", "new_empty_strided")
LIKE = {f"{kind}_like" for kind in ("zeros", "ones", "empty", "full", "rand", "randn", "randint")}
MOVERS = {"copy_", "set_", "_to_copy"}
CAPTURABLE = "This instance was constructed with capturable=True, but step() is not captured"
OF_DATA = ("tensor", "as_tensor", "new_tensor")  # made by the host, then copied
UNORDERED = {"index_add", "index_add_", "scatter_add", "scatter_add_"}


class Mixed(RuntimeError):
    """What CUDA would have refused."""


class Tags:
    """The storages that are on the device. A weak reference keeps an address from another use.

    They outlast the mode: what was moved is still there when it is entered again.
    """

    def __init__(self) -> None:
        self.known: dict[int, StorageWeakRef] = {}

    def add(self, tensor: Tensor) -> None:
        for storage in storages(tensor):
            if storage._cdata not in self.known:
                self.known[storage._cdata] = StorageWeakRef(storage)
        if len(self.known) > 20_000:
            self.known = {key: ref for key, ref in self.known.items() if not ref.expired()}

    def drop(self, tensor: Tensor) -> None:
        for storage in storages(tensor):
            self.known.pop(storage._cdata, None)

    def __contains__(self, tensor: Tensor) -> bool:
        return any(storage._cdata in self.known for storage in storages(tensor))


TAGS = Tags()
PINNED = Tags()  # of the processor, from where the device copies while the host goes on
UNDECIDED = Tags()  # made inside of torch for a tensor that we do not see: wherever the next one is


def storages(tensor: Tensor) -> list[Any]:
    """What holds a tensor's numbers, below the wrappers of `torch.func`."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    if tensor.layout in SPARSE:
        with torch.utils._python_dispatch._disable_current_modes():
            tensor = tensor.values()
    return [tensor.untyped_storage()] if tensor.layout == torch.strided else []


def is_cuda(device: Any) -> bool:
    """Whether a device that somebody names is the pretended one."""
    return device is not None and torch.device(device).type == "cuda"


GENERATORS: dict[int, torch.device] = {}


class GeneratorType(type(REAL_GENERATOR)):  # type: ignore[misc]
    """Generators made outside are of the pretended class: annotations are read once a process."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, REAL_GENERATOR)


class Generator(REAL_GENERATOR, metaclass=GeneratorType):
    """A generator that knows for which device it is."""

    def __new__(cls, device: Any = "cpu") -> Any:
        made = super().__new__(cls, "cpu")
        GENERATORS[made._cdata] = CUDA if is_cuda(device) else CPU
        return made

    @property
    def device(self) -> torch.device:
        return GENERATORS[self._cdata]  # torch hands the same generator on in another object


class PretendedDevice(TorchDispatchMode):
    """While it is entered, ``cuda`` is a device.

    `mixed` lists what CUDA would refuse, with its place; it is raised as well, but a round takes an
    error of the server's function for a spoilt upload. `waits` counts, by place and operation,
    where the host waits for the device, for copies too; `copies` what crosses between them;
    `unordered` sums whose order CUDA does not fix. `steps` counts steps of optimisers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.generator = REAL_GENERATOR("cpu")
        self.mixed: list[str] = []
        self.waits: Counter[str] = Counter()
        self.copies: Counter[str] = Counter()
        self.unordered: Counter[str] = Counter()
        self.steps = 0
        self.capturing: Graph | None = None
        self.sync_debug_mode = "default"
        self.spoiled = False  # whether a capture has failed
        self.target: Any = None  # the device that the function now called names
        self.undo: list[Callable[[], None]] = []

    def report(self, top: int = 40) -> str:
        """What was found, the most frequent first."""
        lines = [f"{self.steps} steps of optimisers; {len(self.mixed)} mixed devices"]
        lines += [f"mixed {what}" for what in self.mixed[:top]]
        for name in ("waits", "copies", "unordered"):
            found: Counter[str] = getattr(self, name)
            lines.append(f"{found.total()} {name}")
            lines += [f"{count:7d} {what}" for what, count in found.most_common(top)]
        return "\n".join(lines)

    def refuse(self, what: str) -> None:
        """Note and raise what CUDA would raise."""
        said = f"Expected all tensors to be on the same device, but got {what} at {place()}"
        self.mixed.append(said)
        raise Mixed(said)

    def wait(self, for_what: str) -> None:
        """Note that the host waits, which no graph can hold."""
        self.waits[f"{place()} {for_what}"] += 1
        if self.sync_debug_mode == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        if self.capturing is not None:
            raise NotCaptured(f"Expected a graph without waits, but got {for_what} at {place()}")

    def crossed(self, name: str, source: Tensor, inside: bool, in_passing: bool = False) -> None:
        """Note a copy from one device to the other; the host waits unless it is in passing."""
        self.copies[f"{place()} {name}"] += 1
        if self.capturing is not None and not (inside and in_passing and source in PINNED):
            raise NotCaptured(f"Expected a graph without copies, but got one at {place()}")
        if not (inside and in_passing):
            self.wait(name)

    # -- every operation, below autograd and vmap

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.overloadpacket.__name__
        given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        here = _decided(given)
        inside = any(here) if self.target is None else is_cuda(self.target)
        undecided = self.target is None and all(value in UNDECIDED for value in given)
        if any(here):
            self._check(func, name, args, given, here)
            self._count(name, args, kwargs)
        if not inside and not undecided:
            return func(*args, **kwargs)
        old = {storage._cdata for value in given for storage in storages(value)}
        drawing = partial(self._drawing, func, args, kwargs)
        noted = self.capturing if func.namespace != "profiler" else None
        if noted is not None:
            noted.remember(written(func, args, kwargs))
        with drawing():
            made = func(*args, **kwargs)
        if noted is not None:
            noted.add(func, args, kwargs, made)
        for value in tree_leaves(made):
            new = isinstance(value, Tensor) and value not in TAGS
            if new and not any(storage._cdata in old for storage in storages(value)):
                (UNDECIDED if undecided else TAGS).add(value)
        return made

    def _check(
        self, func: Any, name: str, args: Any, given: list[Tensor], here: list[bool]
    ) -> None:
        deterministic = torch.are_deterministic_algorithms_enabled()
        if deterministic and name in NOT_DETERMINISTIC and given[0].is_floating_point():
            self.refuse(f"{name}, which is not deterministic there,")
        if all(here) or name in MOVERS:
            return
        words = f"{name} of " + ", ".join(
            f"{'cuda' if on else 'cpu'}{list(value.shape)}"
            for value, on in zip(given, here, strict=True)
        )
        if name in INDEXED:  # indices may be on the processor, and a value that is one number
            if not here[0] or any(v.dim() and v not in TAGS for v in args[2:3]):
                self.refuse(words)
            self.crossed("an index or a number of the processor", given[-1], True)
            return
        if name.startswith("_foreach") and self._pairs_agree(args):
            return
        alone = [value.dim() for value, on in zip(given, here, strict=True) if not on]
        takes_numbers = torch.Tag.pointwise in func.tags or name in SCALARS
        writes = any(value is given[0] for value in written(func, args[:1], {}))
        if any(alone) or not takes_numbers or (writes and not here[0]):
            self.refuse(words)

    def _pairs_agree(self, args: Any) -> bool:
        lists = [a for a in args if isinstance(a, (list, tuple)) and a and isinstance(a[0], Tensor)]
        return all(len({v in TAGS for v in row}) == 1 for row in zip(*lists, strict=True))

    def _count(self, name: str, args: Any, kwargs: Any) -> None:
        by_mask = name in INDEXED and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
        repeats = name == "repeat_interleave" and kwargs.get("output_size") is None
        if name in WAITS or by_mask or repeats:
            self.wait(f"{name}{' by a mask' if by_mask else ''}")
        if name == "copy_" and (args[0] in TAGS) != (args[1] in TAGS):
            in_passing = bool(kwargs.get("non_blocking") or args[2:3] == (True,))
            self.crossed("copy_", args[1], args[0] in TAGS, in_passing)
        if name in UNORDERED and args[0].is_floating_point() and _repeats(args[2], args[1]):
            self.unordered[f"{place()} {name}"] += 1

    def _drawing(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Numbers of the device come from its own generator."""
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return nullcontext()
        own = [v for v in tree_leaves((args, kwargs)) if isinstance(v, REAL_GENERATOR)]
        if own and not is_cuda(GENERATORS.get(own[0]._cdata)):
            self.refuse(f"{func.overloadpacket.__name__} with a generator of the processor")
        return nullcontext() if own else _Instead(self.generator)

    # -- what names a device, or asks for one

    def __enter__(self) -> Any:
        self._patch_tensors()
        self._patch_cuda()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        while self.undo:
            self.undo.pop()()

    def _put(self, owner: Any, name: str, new: Any) -> None:
        had, old = name in vars(owner), getattr(owner, name, None)
        self.undo.append(lambda: setattr(owner, name, old) if had else delattr(owner, name))
        setattr(owner, name, new)

    def _patch_tensors(self) -> None:
        plain_list, plain_numpy = Tensor.tolist, Tensor.numpy
        plain_copy, plain_to = Tensor.__deepcopy__, Tensor.to

        def device(tensor: Tensor) -> Any:
            return CUDA if tensor in TAGS else REAL_DEVICE.__get__(tensor)  # type: ignore[attr-defined]

        def tolist(tensor: Tensor) -> Any:
            if tensor in TAGS:
                self.wait("tolist")
            return plain_list(tensor)

        def numpy(tensor: Tensor, **how: Any) -> Any:
            return self.refuse("numpy()") if tensor in TAGS else plain_numpy(tensor, **how)

        def deepcopy(tensor: Tensor, memo: Any) -> Any:
            made = plain_copy(tensor, memo)
            if tensor in TAGS:
                TAGS.add(made)
            return made

        put = partial(self._put, Tensor)
        put("device", property(device))
        put("is_cuda", property(lambda tensor: tensor in TAGS))
        put("is_cpu", property(lambda tensor: tensor not in TAGS))
        put("tolist", tolist)
        put("numpy", numpy)
        put("__deepcopy__", deepcopy)
        put("pin_memory", lambda tensor: _pinned(tensor.clone()))
        put("is_pinned", lambda tensor: tensor in PINNED)
        for name in ("to", "cuda", "cpu"):
            put(name, _moves(self, name, plain_to))
        for name in NEW:
            put(name, _named(self, getattr(Tensor, name), like=True))
        for name in {each.__name__ for each in _device_constructors()} | LIKE:
            if hasattr(torch, name):
                self._put(torch, name, _named(self, getattr(torch, name), like=name in LIKE))
        self._put(torch, "Generator", Generator)

    def _patch_cuda(self) -> None:
        own = self.generator
        for name, new in {
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "init": lambda: None,
            "_lazy_init": lambda: None,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "set_device": lambda *_: None,
            "get_device_name": lambda *_: "pretended",
            "manual_seed": own.manual_seed,
            "manual_seed_all": own.manual_seed,
            "get_rng_state": lambda *_: own.get_state(),
            "set_rng_state": lambda state, *_: own.set_state(state),
            "mem_get_info": lambda *_: (2**37, 2**37),
            "max_memory_allocated": lambda *_: 0,
            "reset_peak_memory_stats": lambda *_: None,
            "empty_cache": lambda: None,
            "synchronize": lambda *_: self.wait("synchronize"),
            "get_sync_debug_mode": lambda: self.sync_debug_mode,
            "set_sync_debug_mode": partial(setattr, self, "sync_debug_mode"),
            "Stream": partial(Stream, self),
            "Event": partial(Event, self),
            "current_stream": lambda *_: Stream(self),
            "default_stream": lambda *_: Stream(self),
            "stream": lambda stream: stream or nullcontext(),
            "device": lambda *_: nullcontext(),
            "CUDAGraph": partial(Graph, self),
            "graph": partial(Capture, self),
            "is_current_stream_capturing": lambda: self.capturing is not None,
        }.items():
            self._put(torch.cuda, name, new)
        self._put(Tensor, "record_stream", lambda *_: None)
        warned: list[Any] = []

        def begins(optimizer: Any, *_: Any) -> None:
            apt = all(group.get("capturable") for group in optimizer.param_groups)
            if self.capturing is not None and not apt:
                raise NotCaptured("Expected the optimizer's groups to be capturable")
            if apt and self.capturing is None and optimizer not in warned:
                warned.append(optimizer)
                warnings.warn(CAPTURABLE, stacklevel=2)

        def stepped(optimizer: Any, *_: Any) -> None:
            self.steps += 1

        for hook in (
            register_optimizer_step_pre_hook(begins),
            register_optimizer_step_post_hook(stepped),
        ):
            self.undo.append(hook.remove)


def written(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The tensors that an operation writes into."""
    found: list[Any] = []
    for place_, arg in enumerate(func._schema.arguments):
        if arg.alias_info and arg.alias_info.is_write:
            found.append(args[place_] if place_ < len(args) else kwargs.get(arg.name))
    return [value for value in tree_leaves(found) if isinstance(value, Tensor)]


def _decided(given: list[Tensor]) -> list[bool]:
    """Which tensors are on the device; one that may be anywhere goes where the others are."""
    open_ = [value in UNDECIDED for value in given] if UNDECIDED.known else [False] * len(given)
    if any(open_) and not all(open_):
        inside = any(value in TAGS for value in given)
        for value, undecided in zip(given, open_, strict=True):
            if undecided:
                UNDECIDED.drop(value)
                if inside:
                    TAGS.add(value)
    return [value in TAGS for value in given]


def _named(gpu: PretendedDevice, plain: Any, like: bool = False) -> Any:
    """A function with an argument `device`, which may name the pretended one."""

    @wraps(plain)
    def made(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is None:
            device = args[0].device if like else CPU
        pinned = kwargs.pop("pin_memory", False)
        outer, gpu.target = gpu.target, device
        try:
            out = plain(*args, **{**kwargs, "device": CPU})
        finally:
            gpu.target = outer
        if is_cuda(device):
            data = args[plain.__name__ == "new_tensor"] if args else None
            there = isinstance(data, Tensor) and data in TAGS
            if plain.__name__ in OF_DATA and not there:
                gpu.crossed(f"{plain.__name__} to cuda", out, True)
            TAGS.add(out)
        return _pinned(out) if pinned else out

    return made


def _moves(gpu: PretendedDevice, name: str, plain: Any) -> Any:
    """``to``, ``cuda`` and ``cpu``: a copy where the device is another."""

    def moved(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        copy, device = kwargs.pop("copy", False), {"cuda": CUDA, "cpu": CPU}.get(name)
        dtype, layout, in_passing = None, None, kwargs.get("non_blocking", False)
        if name == "to":
            device, dtype, in_passing, layout = torch._C._nn._parse_to(*args, **kwargs)
            other = args[0] if args and isinstance(args[0], Tensor) else kwargs.get("other")
            device = device if other is None else other.device
        how: dict[str, Any] = {} if layout is None else {"memory_format": layout}
        how["dtype"] = dtype or tensor.dtype
        before = tensor in TAGS
        after = before if device is None else is_cuda(device)
        if before == after:
            return plain(tensor, copy=copy, **how)  # type: ignore[no-any-return]
        gpu.crossed(f"to {'cuda' if after else 'cpu'}", tensor, after, in_passing)
        outer, gpu.target = gpu.target, CUDA if after else CPU
        try:
            made: Tensor = plain(tensor, copy=True, **how)
        finally:
            gpu.target = outer
        if after:
            TAGS.add(made)
        return made

    return moved


class _Instead:
    """The processor's draws come from another generator meanwhile."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def __enter__(self) -> None:
        self.own = torch.default_generator.get_state()
        torch.default_generator.set_state(self.generator.get_state())

    def __exit__(self, *_: Any) -> None:
        self.generator.set_state(torch.default_generator.get_state())
        torch.default_generator.set_state(self.own)


def _pinned(tensor: Tensor) -> Tensor:
    PINNED.add(tensor)
    return tensor


def _repeats(index: Tensor, dim: int) -> bool:
    at = index if index.dim() == 1 else index.movedim(dim, -1)
    ordered = at.sort(-1).values
    return bool((ordered[..., 1:] == ordered[..., :-1]).any())


def frames() -> Iterator[Any]:
    """The frames of the library that lead here, the innermost first."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_globals.get("__file__", "")
        if file.startswith(WATCHED) and file != PASSED_OVER:
            yield frame
        frame = frame.f_back


def place() -> str:
    """File and line of the library that is at work, or of who called this."""
    for frame in frames():
        return f"{Path(frame.f_globals['__file__']).relative_to(ROOT)}:{frame.f_lineno}"
    frame = sys._getframe(1)
    while frame.f_back and (
        "torch" in frame.f_code.co_filename or __file__ == frame.f_code.co_filename
    ):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def main(argv: list[str]) -> None:
    """Run a script, or a module after ``-m``, with the pretended device."""
    with suppress(ImportError):  # torch-sparse cannot be imported there
        importlib.import_module("torch_geometric")
    with PretendedDevice() as gpu:
        try:
            module = argv[0] == "-m"
            sys.argv = argv[module:]
            sys.path.insert(0, "." if module else str(Path(argv[0]).parent))
            run = runpy.run_module if module else runpy.run_path
            run(sys.argv[0], run_name="__main__")
        finally:
            print(gpu.report())


if __name__ == "__main__":
    main(sys.argv[1:])
