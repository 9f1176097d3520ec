"""Progress of long work, on standard error and only on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

from wharfinger.providers.plan import Plan, Step


@contextmanager
def applying(instance: str) -> Iterator[tuple[Callable[[Plan], None], Callable[[Step], None]]]:
    """Show how far the plan of a driver instance is applied.

    Gives the two callbacks that DriverCycle.sync takes.
    """
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(instance, total=None)
        yield (
            lambda plan: progress.update(task, total=len(plan.steps) or None, completed=0),
            lambda step: progress.update(task, advance=1, description=f"{instance}: {step.name}"),
        )
