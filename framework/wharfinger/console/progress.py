"""Show the progress of long operations."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from wharfinger.exceptions import printable
from wharfinger.providers.plan import Plan, Step


@contextmanager
def applying(
    instance: str, taken: list[Step]
) -> Iterator[tuple[Callable[[Plan], None], Callable[[Step], None]]]:
    """Show the progress of a plan; yield ``on_plan`` and ``on_step`` of Reconciler.sync.

    Appends the applied steps to ``taken``.
    """
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(instance, total=None)

        def on_plan(plan: Plan) -> None:
            progress.update(task, total=len(plan.steps) or None, completed=0)

        def on_step(step: Step) -> None:
            taken.append(step)
            progress.update(task, advance=1, description=f"{instance}: {step.name}")

        yield on_plan, on_step


@contextmanager
def following(device: str) -> Iterator[Callable[[str, str], None]]:
    """Print the steps of a programming job; yield the callback of ``jobs.program``."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    shown: list[tuple[str, str]] = []
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(device, total=None)

        def on_step(step: str, detail: str) -> None:
            if (step, detail) not in shown[-1:]:
                shown.append((step, detail))
                progress.update(task, description=f"{device}: {step}")
                line = f"{datetime.now():%H:%M:%S} {device}: {step}: {detail}"
                with suppress(OSError):  # the reader closed the pipe: the job continues
                    sys.stdout.write(f"{printable(line)}\n")
                    sys.stdout.flush()

        yield on_step
