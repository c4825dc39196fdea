"""Activations within what `torch.compile` compiles.

Theory of operation:

1. In a program that is being traced, a hook puts one operator of its own there, which takes the tensor and gives
   nothing back. So the graph does not break, and what is asked of the tensor may change without another compilation.
2. A compiled program does not see that hooks come or go. Where that changes, everything compiled is forgotten once
   (`torch.compiler.reset`), and compiled again when it is called.
3. That somebody compiled a function around the module, or the module behind its back, is found out when an event comes
   and no hook was heard of.
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
    """Show a tensor to whoever watches this place. That it seems to change `calls` keeps it in the program."""
    take, name = _places.get(place, (None, ""))
    method = take and take()
    if method:
        method("activations", name, value)


@look.register_fake  # type: ignore[untyped-decorator,unused-ignore]
def _(value: torch.Tensor, calls: torch.Tensor, place: int) -> None:
    return None


def forward_hook(take: Callable[[str, str, Any], None], name: str, place: int) -> Callable[[Any, Any, Any], None]:
    """Return a hook that shows what a module gave."""

    def hook(module: object, args: object, output: object) -> None:
        if torch.compiler.is_compiling():
            if isinstance(output, torch.Tensor):
                look(output.detach(), _calls, place)
        else:
            take("activations", name, output)

    return hook


class Compiled:
    """What is known of whether a module is compiled.

    Attributes:
        is_sure: Whether it is known to be.
        n_resets: How often everything compiled was forgotten.
    """

    def __init__(self, *, is_sure: bool) -> None:
        self.is_sure = is_sure
        self.n_resets = 0
        self._is_tried = False

    @staticmethod
    def place(take: Callable[..., Any], name: str) -> int:
        """Return the number under which a compiled program shows a tensor."""
        number = next(_numbers)
        _places[number] = weakref.WeakMethod(take), name
        return number

    def changed(self) -> None:
        """See hooks come or go."""
        self._is_tried = False
        if self.is_sure:
            self.reset()

    @property
    def is_possible(self) -> bool:
        """Whether there can be compiled programs in this process."""
        return "torch._dynamo" in sys.modules

    def reset(self) -> None:
        """Forget everything that was compiled in this process; once until hooks change again."""
        if not self._is_tried:
            self._is_tried = True
            self.n_resets += 1
            torch.compiler.reset()
