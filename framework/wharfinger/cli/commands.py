"""The command manager of the program."""

from typing import Any

from cliff.commandmanager import CommandManager
from stevedore.named import NamedExtensionManager


class Commands(CommandManager):
    """Command manager that does not import the modules of all commands."""

    def load_commands(self, namespace: str) -> None:
        self.group_list.append(namespace)
        # With an empty list of names, the manager loads no command, but can list all of them.
        found: NamedExtensionManager[Any] = NamedExtensionManager(namespace, [])
        for entry_point in found.list_entry_points():
            self.commands[entry_point.name.replace("_", " ")] = entry_point
