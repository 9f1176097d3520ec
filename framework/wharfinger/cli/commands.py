"""The commands of the program; each is imported only when it runs."""

from typing import Any

from cliff.commandmanager import CommandManager
from stevedore.named import NamedExtensionManager


class Commands(CommandManager):
    """cliff's command manager, without its import of the modules of all commands."""

    def load_commands(self, namespace: str) -> None:
        """Register the names of the commands in a namespace."""
        self.group_list.append(namespace)
        # With an empty list of names, it loads no command and lists all of them.
        found: NamedExtensionManager[Any] = NamedExtensionManager(namespace, [])
        for entry_point in found.list_entry_points():
            self.commands[entry_point.name.replace("_", " ")] = entry_point
