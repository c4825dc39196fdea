"""Activations inside modules that `torch.compile` compiles.

Theory of operation:

1. While a program is traced, a hook adds an operator of its own that takes the tensor and returns nothing. So the graph
   does not break, and queries about the tensor can change without another compilation.
2. A compiled program does not notice that hooks are added or removed. When they change, all compiled programs are
   discarded once (`torch.compiler.reset`), and compiled again when they are called.
3. If the program compiled a function around the module, or the module after `watch`, an event comes without a call of a
   hook. This is how we find out.
"""

import itertools
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch

_places: dict[int, tuple[weakref.WeakMethod[Any], str]] = {}
_numbers = itertools.count()
_calls = torch.zeros(())


@torch.library.custom_op(  # type: ignore[untyped-decorator,unused-ignore]
    "sightglass::look", mutates_args=("calls",), schema="(Tensor value, Tensor(a!) calls, int place) -> ()"
)
def look(value: torch.Tensor, calls: torch.Tensor, place: int) -> None:
    """Pass a tensor to its watcher. The operator claims to change `calls`, so that the compiler keeps it."""
    take, name = _places.get(place, (None, ""))
    method = take and take()
    if method:
        method("activations", name, value)


@look.register_fake  # type: ignore[untyped-decorator,unused-ignore]
def _(value: torch.Tensor, calls: torch.Tensor, place: int) -> None:
    return None


def forward_hook(take: Callable[[str, str, Any], None], name: str, place: int) -> Callable[[Any, Any, Any], None]:
    """Return a forward hook that passes on a module's output."""

    def hook(module: object, args: object, output: object) -> None:
        if torch.compiler.is_compiling():
            if isinstance(output, torch.Tensor):
                look(output.detach(), _calls, place)
        else:
            take("activations", name, output)

    return hook


class Compiled:
    """Whether a module is compiled, as far as we know.

    Attributes:
        is_sure: Whether the module is known to be compiled.
        n_resets: How often compiled programs were discarded.
    """

    def __init__(self, *, is_sure: bool) -> None:
        self.is_sure = is_sure
        self.n_resets = 0
        self._is_tried = False

    @staticmethod
    def place(take: Callable[..., Any], name: str) -> int:
        """Return the number under which a compiled program passes on a tensor."""
        number = next(_numbers)
        _places[number] = weakref.WeakMethod(take), name
        return number

    def changed(self) -> None:
        """Take note that hooks were added or removed."""
        self._is_tried = False
        if self.is_sure:
            self.reset()

    @property
    def is_possible(self) -> bool:
        """Whether this process may have compiled programs."""
        return "torch._dynamo" in sys.modules

    def reset(self) -> None:
        """Discard all compiled programs of this process; at most once until hooks change again."""
        if not self._is_tried:
            self._is_tried = True
            self.n_resets += 1
            torch.compiler.reset()
