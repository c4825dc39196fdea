"""Stacks of several processes: equal ones are shown once, with their ranks, and one line says where all are."""

from __future__ import annotations

from sightglass.core.process.stacks import MAX_FRAMES, StackFrame, Stacks, ThreadStack, thread_stacks


def stack(*functions, rank=None, thread="MainThread"):
    frames = [StackFrame(file="/train.py", line=7, function=function) for function in functions]
    return ThreadStack(thread=thread, main=thread == "MainThread", frames=frames, rank=rank)


def test_equal_stacks_of_ranks_are_shown_once_and_the_odd_one_is_seen_at_once():
    threads = [stack("<module>", "read" if rank == 3 else "all_reduce", rank=rank) for rank in range(8)]
    loaders = [stack("get", rank=rank, thread="loader") for rank in range(8)]
    stacks = Stacks(run="gpt", threads=threads + loaders, missing={8: "no reply"})
    assert stacks.summary() == "7 ranks in all_reduce, rank 3 in read, rank 8 unknown: no reply"
    assert [(one.frames[-1].function, ranks) for one, ranks in stacks.merged()] == [
        ("all_reduce", [0, 1, 2, 4, 5, 6, 7]), ("read", [3]), ("get", [*range(8)])
    ]  # fmt: skip
    shown = """\
run gpt: 7 ranks in all_reduce, rank 3 in read, rank 8 unknown: no reply

main thread  ranks 0-2, 4-7
  File "/train.py", line 7, in <module>
  File "/train.py", line 7, in all_reduce

main thread  rank 3
  File "/train.py", line 7, in <module>
  File "/train.py", line 7, in read

thread loader  ranks 0-7
  File "/train.py", line 7, in get"""
    assert str(stacks) == shown


def test_of_a_recursion_without_end_the_innermost_calls_are_shown():
    def dive(n):
        return thread_stacks() if n == 0 else dive(n - 1)

    main = dive(2 * MAX_FRAMES)[0]
    assert main.main
    assert len(main.frames) == MAX_FRAMES
    assert main.frames[-1].function == "thread_stacks"
    assert main.frames[0].function.endswith("dive")
