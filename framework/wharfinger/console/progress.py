"""Progress of long work, on standard error and only on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

from wharfinger.providers.plan import Plan, Step


@contextmanager
def applying(
    instance: str, taken: list[Step]
) -> Iterator[tuple[Callable[[Plan], None], Callable[[Step], None]]]:
    """Show how far the plan of a driver instance is applied, and note the steps taken.

    Gives the two callbacks that DriverCycle.sync takes.
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
