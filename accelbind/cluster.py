"""How a command reaches the cluster: an address, kubectl's context, or the service account.

kubectl does all that kubeconfigs ask for: contexts, credential plugins, proxies, impersonation.
"""

import asyncio
import contextlib
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import typer

from accelbind.flags import default_note, file_option, with_options
from services.kube.access import Access, find_access, own_namespace
from services.kube.client import FORBIDDEN, BadStatus, ClusterClient
from services.kube.lists import survey_objects
from services.pods.requests import parse_count
from services.process.errors import ClusterError, InvalidQuantity, InvalidSettings
from services.process.settings import UNIX, api_server_address, variable
from services.process.text import plain

T = TypeVar("T")
Json: TypeAlias = dict[str, Any]

NO_CLUSTER: Final = "no cluster is known: set --kubeconfig, $KUBECONFIG or --api-server"
_FOUND: Final = "$KUBECONFIG, ~/.kube/config, or the pod's service account"
DEFAULT_NAMESPACE: Final = "default"
"""Of Kubernetes, for whoever names none."""
ENDED: Final = ("Succeeded", "Failed")
"""The phases of pods that have nothing any more."""

# The shell becomes kubectl, which may ask a person on the terminal. Its child waits until the only
# writer of the pipe has gone: this process, however it ends.
_UNTIL_THE_PIPE_ENDS: Final = """
pipe=$1 folder=$2; shift 2
(trap '' INT TERM HUP; read -r _ <"$pipe"; kill $$; rm -rf "$folder") >/dev/null 2>&1 &
exec "$@" --unix-socket "$folder/socket"
"""


def _api_server(value: str) -> str:
    try:
        return api_server_address(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that flags of a command name, if any: each field is a flag."""

    api_server: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="unix:PATH or http://HOST:PORT of the API server, in place of kubectl.",
            parser=_api_server,
            envvar=variable("api_server"),
            show_default=False,
            show_envvar=False,
        ),
    ] = ""
    kubeconfig: Annotated[
        Path | None,
        file_option(
            "--kubeconfig",
            text=f"Kubeconfig that kubectl reaches the API server with. {default_note(_FOUND)}",
        ),
    ] = None
    context: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"Context of the kubeconfig. {default_note('the current one')}",
            show_default=False,
        ),
    ] = ""

    def __post_init__(self) -> None:
        if self.api_server and (self.kubeconfig or self.context):
            raise InvalidSettings("--api-server excludes --kubeconfig and --context")

    @property
    def is_named(self) -> bool:
        """Whether flags name a cluster."""
        return bool(self.api_server or self.kubeconfig or self.context)

    @property
    def is_chosen(self) -> bool:
        """Whether a person has chosen a cluster, by flags or for kubectl."""
        return self.is_named or self._is_kubectls

    @property
    def is_known(self) -> bool:
        """Whether there is a cluster, a chosen one or that of the pod."""
        return self.is_chosen or find_access() is not None

    @property
    def _is_kubectls(self) -> bool:
        if self.api_server:
            return False
        if self.kubeconfig or self.context or os.environ.get("KUBECONFIG"):
            return True
        # A pod may have a folder of a person in it, and no kubectl.
        has_file = (Path.home() / ".kube" / "config").is_file()
        return has_file and (shutil.which("kubectl") is not None or find_access() is None)

    def namespace(self) -> str:
        """The namespace where kubectl would create an object that names none.

        Raises:
            ClusterError: kubectl does not say.
        """
        if self._is_kubectls:
            return self._view_namespace() or DEFAULT_NAMESPACE
        access = find_access(self.api_server)
        if access is None or access.account is None:
            return DEFAULT_NAMESPACE
        return own_namespace(access.account) or DEFAULT_NAMESPACE

    def query(self, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """The result of a function that is given a client of the cluster. Raises as `access`."""
        with self.access() as access:
            return query(access, work)

    @contextlib.contextmanager
    def access(self, *, apart: bool = False) -> Iterator[Access]:
        """Access to the cluster; `kubectl proxy` runs inside the block if it is kubectl's.

        Signals to the process group do not reach a proxy that runs `apart`, nor can it prompt.

        Raises:
            ClusterError: There is no cluster, no kubectl, or it does not start.
        """
        if self._is_kubectls:
            with self._proxy(apart=apart) as access:
                yield access
            return
        found = find_access(self.api_server)
        if found is None:
            raise ClusterError(NO_CLUSTER)
        yield found

    def _kubectl(self) -> list[str]:
        program = shutil.which("kubectl")
        if program is None:
            raise ClusterError(
                f"{self._named_by()} needs kubectl, which is not in PATH: install it, or set"
                " --api-server"
            )
        if self.kubeconfig and not self.kubeconfig.exists():
            raise ClusterError(f"the kubeconfig {self.kubeconfig} does not exist")
        kubeconfig = ["--kubeconfig", str(self.kubeconfig)] if self.kubeconfig else []
        return [program, *kubeconfig, *(["--context", self.context] if self.context else [])]

    def _named_by(self) -> str:
        if self.kubeconfig or self.context:
            return "--kubeconfig" if self.kubeconfig else "--context"
        return "$KUBECONFIG" if os.environ.get("KUBECONFIG") else "~/.kube/config"

    def _view_namespace(self) -> str:
        view = ("config", "view", "--minify", "--output=jsonpath={.contexts[0].context.namespace}")
        done = subprocess.run(  # noqa: S603 - kubectl in PATH, with flags of its own
            [*self._kubectl(), *view], capture_output=True, text=True, check=False, errors="replace"
        )
        if done.returncode:
            reason = plain(" ".join(done.stderr.split()).removeprefix("error: "), 400)
            raise ClusterError(f"kubectl can't use {self._named_by()}: {reason}")
        return done.stdout.strip()

    @contextlib.contextmanager
    def _proxy(self, *, apart: bool) -> Iterator[Access]:
        kubectl, (read_end, write_end) = self._kubectl(), os.pipe()
        with tempfile.TemporaryDirectory(prefix="accelbind-", ignore_cleanup_errors=True) as folder:
            watched = ("sh", "-c", _UNTIL_THE_PIPE_ENDS, "sh", f"/dev/fd/{read_end}", folder)
            command = [*watched, *kubectl, "proxy"]
            with subprocess.Popen(  # noqa: S603 - the same
                command, stdout=subprocess.PIPE, pass_fds=[read_end], start_new_session=apart
            ) as process:
                os.close(read_end)
                try:
                    # It prints a line once it serves.
                    if process.stdout is None or not process.stdout.readline():
                        self._view_namespace()  # which explains what is wrong with a kubeconfig
                        raise ClusterError("kubectl proxy ended: see its message above")
                    prompts = sys.stdin is not None and sys.stdin.isatty()
                    yield Access(f"{UNIX}{folder}/socket", name="of kubectl", prompts=prompts)
                finally:
                    os.close(write_end)


def with_target(function: Callable[..., None]) -> Callable[..., None]:
    """Add the flags that name a cluster to a command, which gets it as `target`."""
    flags = inspect.signature(Target).parameters

    def command(**values: Any) -> None:  # noqa: ANN401 - values of flags
        target = Target(**{name: values.pop(name) for name in flags})
        function(**values, target=target)

    return with_options(command, function, {"target"}, flags.values())


def query(access: Access, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
    """The result of a function that is given a client of a cluster."""

    async def whole() -> T:
        async with ClusterClient(access) as client:
            return await work(client)

    return asyncio.run(whole())


def part(item: Json, *names: str) -> Json:
    """An object within one, by the names that lead there; empty if there is none."""
    for name in names:
        found = item.get(name)
        item = found if isinstance(found, dict) else {}
    return item


def number_of(amount: object) -> int:
    """An amount of devices, which the API server may write as `1k`; 0 if it can't be read."""
    try:
        return parse_count(str(amount)) if amount is not None else 0
    except InvalidQuantity:
        return 0


@dataclass(slots=True)
class Reader:
    """Reads a cluster, and remembers what may not be read."""

    client: ClusterClient
    problems: list[str] = field(default_factory=list)

    async def listed(
        self, path: str, read: Callable[[Json], T | None], *, labels: str = "", note: str = "{}"
    ) -> list[T] | None:
        """The objects of a list; None, and a problem, if they may not be listed."""
        return await self.allowed(survey_objects(self.client, path, read, labels=labels), note=note)

    async def allowed(self, reading: Awaitable[T], *, note: str = "{}") -> T | None:
        """What is read; None, and a problem, if that is forbidden: `note` formats the error."""
        try:
            return await reading
        except BadStatus as error:
            if error.status != FORBIDDEN:
                raise
            self.problems.append(note.replace("{}", str(error)))
            return None
