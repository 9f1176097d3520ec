"""A real Keystone as a fixture, with users, projects, a catalog and tokens."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from keystoneauth1.adapter import Adapter
from keystoneauth1.identity.v3 import Password
from keystoneauth1.session import Session

from wharfinger_harnesses.daemons import TIMEOUT, PythonDaemon

REGION = "harbour"
#: The project in which the users of services have their roles.
SERVICE_PROJECT = "service"

_PROGRAM = Path(__file__).with_name("keystone_service.py")
_DOMAIN = "Default"
_CONFIGURATION = """\
[database]
connection = sqlite:///{directory}/keystone.sqlite

[fernet_tokens]
key_repository = {directory}/keys

[fernet_receipts]
key_repository = {directory}/keys

# The least number of rounds: with the default, each login takes a quarter of a second.
[identity]
password_hash_rounds = 4

# Without a cache, each validation of a token takes a tenth of a second.
[cache]
backend = dogpile.cache.memory
"""


@dataclass(frozen=True)
class User:
    """A user in the default domain. Its tokens are for ``project``, or for the system if None."""

    name: str
    password: str
    project: str | None = None
    project_id: str | None = None


class Keystone(PythonDaemon):
    """Keystone on 127.0.0.1, with the roles admin, manager, member, reader and service.

    ``url`` is the URL of its API. ``admin`` is an administrator in the project "admin".
    ``system_admin`` is the same user with tokens for the system.
    """

    url: str
    admin: User
    system_admin: User

    def _setUp(self) -> None:
        super()._setUp()
        (self.directory / "keystone.conf").write_text(
            _CONFIGURATION.format(directory=self.directory)
        )
        self.system_admin = User("admin", uuid4().hex)
        self.admin = replace(self.system_admin, project="admin")
        self.start_program(_PROGRAM, REGION, self.admin.password)
        self.url = f"http://127.0.0.1:{(self.directory / 'port').read_text()}/v3"
        self._identity = self.adapter(self.admin, "identity")
        self._roles = self._ids("roles")
        self._projects = self._ids("projects")
        self.admin = replace(self.admin, project_id=self._projects["admin"])

    def create_user(
        self,
        name: str,
        project: str | None,
        *roles: str,
        system_roles: Iterable[str] = (),
    ) -> User:
        """Create a user with ``roles`` in a project and ``system_roles`` in the system.

        Create the project if it does not exist.
        """
        password = uuid4().hex
        user_id = self._create("users", "user", name=name, password=password)
        project_id = None if project is None else self.project_id(project)
        grants = [(f"/projects/{project_id}", role) for role in roles]
        grants += [("/system", role) for role in system_roles]
        for scope, role in grants:
            self._identity.put(f"{scope}/users/{user_id}/roles/{self._roles[role]}")
        return User(name, password, project, project_id)

    def project_id(self, name: str) -> str:
        """Return the id of a project; create the project if it does not exist."""
        if name not in self._projects:
            self._projects[name] = self._create("projects", "project", name=name)
        return self._projects[name]

    def register(self, service_type: str, name: str, url: str) -> None:
        """Add a service to the catalog, with one URL for all interfaces."""
        service_id = self._create("services", "service", type=service_type, name=name)
        for interface in ("public", "internal", "admin"):
            self._create(
                "endpoints",
                "endpoint",
                service_id=service_id,
                interface=interface,
                url=url,
                region_id=REGION,
            )

    def auth_options(self, user: User) -> dict[str, str]:
        """Return keystoneauth's options for a user, for a section of a configuration file."""
        return {
            "auth_type": "password",
            "auth_url": self.url,
            "username": user.name,
            "password": user.password,
            "user_domain_name": _DOMAIN,
            **_scope(user),
        }

    def authtoken_options(self, user: User) -> dict[str, str]:
        """Return the options of [keystone_authtoken] for a service with this user."""
        return {
            **self.auth_options(user),
            "www_authenticate_uri": self.url,
            # The default caches a token's validity for minutes.
            "token_cache_time": "-1",
            # No retries when Keystone does not answer.
            "http_request_max_retries": "0",
            "service_token_roles_required": "true",
        }

    def adapter(self, user: User, service_type: str) -> Adapter:
        """Return a keystoneauth adapter for requests of a user to a service in the catalog."""
        options: dict[str, Any] = {**self.auth_options(user)}
        del options["auth_type"]
        session = Session(auth=Password(**options), timeout=TIMEOUT)
        return Adapter(session, service_type=service_type)

    def token(self, user: User) -> str:
        """Return a new token of the user."""
        token = self.adapter(user, "identity").get_token()
        assert token is not None
        return token

    def revoke(self, token: str) -> None:
        """Revoke a token."""
        self._identity.delete("/auth/tokens", headers={"X-Subject-Token": token})

    def _ids(self, collection: str) -> dict[str, str]:
        found = self._identity.get(f"/{collection}").json()[collection]
        return {item["name"]: item["id"] for item in found}

    def _create(self, collection: str, kind: str, **fields: str) -> str:
        answer = self._identity.post(f"/{collection}", json={kind: fields}).json()
        return str(answer[kind]["id"])


def _scope(user: User) -> dict[str, str]:
    if user.project is None:
        return {"system_scope": "all"}
    return {"project_name": user.project, "project_domain_name": _DOMAIN}
