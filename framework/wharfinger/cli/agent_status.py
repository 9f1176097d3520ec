"""The command ``wharfinger agent status``."""

import argparse
from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from cliff.columns import FormattableColumn
from cliff.lister import Lister

from wharfinger.cli.app import FAILED
from wharfinger.cli.command import WharfingerCommand
from wharfinger.exceptions import printable

if TYPE_CHECKING:
    from wharfinger.agent.health import Check
    from wharfinger.agent.status import AgentStatus, InstanceStatus

#: The units of ages, in seconds.
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"))


class Age(FormattableColumn[float | None]):
    """An age in seconds; None means never."""

    def human_readable(self) -> str:
        if self._value is None:
            return "never"
        for seconds, unit in _UNITS:
            if self._value >= 2 * seconds:
                return f"{self._value / seconds:.0f} {unit} ago"
        return f"{self._value:.0f} s ago"

    def machine_readable(self) -> float | None:
        return None if self._value is None else round(self._value, 3)


class Texts(FormattableColumn[list[str]]):
    """Texts, of which a table shows each on its own line."""

    def human_readable(self) -> str:
        return "\n".join(self._value)


class AgentStatusCommand(WharfingerCommand, Lister):
    """Show the work of the agent on this host: one row for each driver instance.

    Exits with 1 if a health check of the agent fails, or if no agent answers.
    """

    def run(self, parsed_args: argparse.Namespace) -> int:
        self._is_healthy = False
        code = super().run(parsed_args)
        return code if code or self._is_healthy else FAILED

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from wharfinger.agent import health
        from wharfinger.agent.status_client import read_status
        from wharfinger.conf import AgentSection

        # Other sections may be invalid by now; the agent then still runs with the former
        # configuration.
        status = read_status(AgentSection.read(self.app.parsed).health_socket)
        now = monotonic()
        found = health.health(status, now)
        self._is_healthy = found.verdict is not health.Verdict.FAIL
        for text in _agent_errors(status):
            self.app.LOG.warning("%s", printable(text))
        rows = [
            _row(one, [check for check in found.checks if check.instance == one.name], now)
            for one in status.instances
        ]
        return (
            "Instance",
            "State",
            "Full Cycle",
            "Drift Cycle",
            "Poll",
            "Providers",
            "Reserved",
            "Conflicts",
            "Restarts",
            "Errors",
        ), rows


def _agent_errors(status: "AgentStatus") -> Iterator[str]:
    if status.is_stopping:
        yield "the agent stops"
    if status.refused_reload:
        yield f"the last new configuration was refused: {status.refused_reload}"
    if status.service_error:
        yield f"the last report of the host's service failed: {status.service_error}"


def _row(one: "InstanceStatus", checks: "list[Check]", now: float) -> tuple[Any, ...]:
    from wharfinger.agent.schedule import CycleType

    ages = [
        None if (moment := one.completed_at.get(kind)) is None else max(0.0, now - moment)
        for kind in CycleType
    ]
    return (
        one.name,
        one.state.value,
        *map(Age, ages),
        one.report.providers.published,
        one.report.providers.reserved,
        one.report.conflicts,
        one.restarts,
        Texts([printable(text) for text in _instance_errors(one, checks)]),
    )


def _instance_errors(one: "InstanceStatus", checks: "list[Check]") -> Iterator[str]:
    from wharfinger.agent.health import CheckName
    from wharfinger.agent.schedule import CycleType

    kinds = {
        CheckName.FULL_CYCLE: CycleType.FULL,
        CheckName.DRIFT_CYCLE: CycleType.DRIFT,
        CheckName.POLL: CycleType.POLL,
    }
    for check in checks:
        if not check.output:
            continue
        if check.name is CheckName.PROBLEMS:
            yield from one.report.problems
            continue
        detail = ""
        if check.name is CheckName.STATE:
            detail = one.driver_call or one.last_end
        elif check.name in kinds and kinds[check.name] in one.report.cycles:
            detail = one.report.cycles[kinds[check.name]].error
        yield f"{check.output} ({detail})" if detail else check.output
