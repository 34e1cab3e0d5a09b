"""The plugin and a kubelet that does all that kubelets do, in one process."""

import asyncio
import json
import os
import random
import shutil
import socket
import tarfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

import grpc
import grpc.aio
import pytest

from plugin import probes, registration, server
from plugin.process import Plugin
from plugin.registration import RegistrationState, explain
from services.devices.hardware.events import follow_card_events
from services.devices.hardware.scan import scan
from services.devices.model import PluginMode
from services.devices.resources import advertise
from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet import deviceplugin_pb2_grpc as rpc
from services.kubelet.sockets import listen, plugins_folder, registration_socket
from services.process.errors import AccelbindError, KubeletError
from simulator.card_faults import Fault
from simulator.cards import CardSpec, Rack
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import AF, NLB0, NLB3, container, pod, running, settings
from tests.support import eventually_async, require_shared

pytestmark = pytest.mark.anyio


async def offered(kubelet: KubeletStandIn, count: int, resource: str = AF) -> None:
    await kubelet.until(lambda: kubelet.allocatable.get(resource, 0) == count)


async def seconds_until(step: Awaitable[None]) -> float:
    began = time.perf_counter()
    await step
    return time.perf_counter() - began


def methods(kubelet: KubeletStandIn) -> list[str]:
    return [call.method for call in kubelet.calls]


def state(plugin: Plugin, resource: str = AF) -> RegistrationState | None:
    endpoint = plugin.serving.registrations.get(resource)
    return endpoint.state if endpoint else None


def trouble(plugin: Plugin, resource: str = AF) -> str:
    endpoint = plugin.serving.registrations.get(resource)
    return endpoint.error if endpoint else ""


async def registered_again(kubelet: KubeletStandIn, times: int) -> None:
    await kubelet.until(lambda: methods(kubelet).count("Registered") >= times)


async def ready(plugin: Plugin) -> probes.Answer:
    return await plugin.readyz()


async def is_ready(plugin: Plugin) -> bool:
    return (await ready(plugin))[0] == 200


async def test_cards_are_registered_and_listed(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec(driver="opae", numa_node=1))
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0, NLB3)))
    async with running(settings(short_dir)) as plugin:
        await offered(kubelet, 2)
        await kubelet.until(lambda: len(kubelet.capacity) == 2)
        await eventually_async(lambda: is_ready(plugin))
        order = [call.method for call in kubelet.calls if call.resource == AF]
        assert order.index("GetDevicePluginOptions") < order.index("Registered")
        status, text = await ready(plugin)
        first, *lines = text.splitlines()
        assert (status, first) == (200, "ok")
        assert lines == [
            f"{name} is registered ({n} devices)" for name, n in sorted(kubelet.capacity.items())
        ]
        assert await plugin.healthz() == (200, "ok: 2 sockets answer\n")
    await kubelet.until(lambda: sum(kubelet.allocatable.values()) == 0)
    assert [path.name for path in (short_dir / "k/device-plugins").glob("*.sock")] == [
        "kubelet.sock"
    ]


async def test_a_pod_gets_its_device(short_dir: Path, rack: Rack, kubelet: KubeletStandIn) -> None:
    rack.add_card(CardSpec(driver="dfl", address="0000:5e:00.0"))
    async with running(settings(short_dir, host_root="/host")):
        await offered(kubelet, 1)
        admitted = await kubelet.admit(pod("p", container("c", AF)))
        await kubelet.settled(admitted)
        main = admitted["c"]
        assert main.running
        assert [each.host_path for each in main.granted.devices] == ["/host/dev/dfl-port.0"]
        assert [each.container_path for each in main.granted.devices] == ["/dev/dfl-port.0"]
        variable = "ACCELBIND_AF_CE4_D84_ZKIWK5JWXZOUBVYHCL4QITHCTCSKO8QT_J5DNOP5BAS"
        assert dict(main.granted.env) == {variable: "0000:5e:00.0"}


async def test_a_container_gets_devices_of_one_card_on_one_node(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    for numa_node in (0, 1, 1, 0):
        rack.add_card(CardSpec(ports=2, numa_node=numa_node))
    async with running(settings(short_dir)):
        await offered(kubelet, 8)
        begun = await kubelet.admit(pod("p", container("c", AF)))
        pair = await kubelet.admit(pod("q", container("c", AF, 2)))
        rest = await kubelet.admit(pod("r", container("c", AF)))
        given = []
        for each in (begun, pair, rest):
            await kubelet.settled(each)
            given.append({node.container_path[-1] for node in each["c"].granted.devices})
    assert given == [{"0"}, {"6", "7"}, {"1"}]


async def test_devices_are_described_for_the_runtime_and_named_where_asked_for(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    address = rack.add_card(CardSpec())
    folder = short_dir / "cdi"
    for cdi, names in ((True, ("intel.cdi.k8s.io/fpga=dfl-port.0",)), (False, ())):
        async with running(settings(short_dir, cdi_dir=folder, cdi=cdi)) as plugin:
            await offered(kubelet, 1)
            await eventually_async(lambda: plugin.serving.cdi and plugin.serving.cdi.published)
            admitted = await kubelet.admit(pod(f"p-{cdi}".lower(), container("c", AF)))
            await kubelet.settled(admitted)
            assert admitted["c"].granted.cdi_devices == names
            assert [each.host_path for each in admitted["c"].granted.devices] == [
                f"{short_dir}/root/dev/dfl-port.0"
            ]
            await kubelet.delete_pod(admitted)
        assert json.loads((folder / "accelbind-fpga.json").read_bytes())["cdiVersion"] == "0.5.0"
    rack.remove_card(address)
    async with running(settings(short_dir, cdi_dir=folder)):
        await eventually_async(lambda: list(folder.iterdir()) == [])


async def test_a_kubelet_that_comes_later_is_waited_for(
    short_dir: Path, rack: Rack, capsys: pytest.CaptureFixture[str]
) -> None:
    rack.add_card(CardSpec())
    async with running(settings(short_dir)) as plugin:
        await eventually_async(lambda: state(plugin) is RegistrationState.WAITING)
        status, text = await ready(plugin)
        assert status == 503
        assert f"{AF} waits for the kubelet (1 devices)" in text
        assert (await plugin.healthz())[0] == 200
        async with KubeletStandIn(short_dir / "k", node_name="n1") as kubelet:
            await offered(kubelet, 1)
    assert capsys.readouterr().out.count("kubelet is away: waiting for its socket") == 1


async def test_a_restarted_kubelet_has_its_devices_back(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, figure: Callable[[str], None]
) -> None:
    rack.add_card(CardSpec())
    taken = []
    async with running(settings(short_dir)):
        await offered(kubelet, 1)
        for _ in range(3):
            await kubelet.stop()
            await kubelet.start()
            began = time.monotonic()
            await offered(kubelet, 1)
            taken.append(time.monotonic() - began)
    figure(f"registered again after {min(taken):.3f} to {max(taken):.3f} s")


async def test_a_kubelet_that_stays_away_for_a_while_is_found_again(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec())
    async with running(settings(short_dir)) as plugin:
        await offered(kubelet, 1)
        await kubelet.stop()  # its socket stays behind
        await eventually_async(lambda: "nothing answers" in trouble(plugin))
        await kubelet.start()
        await offered(kubelet, 1)


async def test_several_restarts_a_second_end_in_one_registration(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec())
    chance = random.Random(7)  # noqa: S311 - repeatable
    async with running(settings(short_dir)) as plugin:
        await offered(kubelet, 1)
        for _ in range(15):
            await kubelet.restart()
            await asyncio.sleep(chance.uniform(0, 0.15))  # at any moment of any call
        await offered(kubelet, 1)
        folder = short_dir / "k/device-plugins"
        await eventually_async(  # the last restart may not have been noticed yet
            lambda: (
                state(plugin) is RegistrationState.REGISTERED
                and len(list(folder.glob("accelbind-*.sock"))) == 1
            )
        )


async def test_sockets_deleted_behind_our_back_are_made_again(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec())
    rack.add_card(CardSpec(afu_ids=(NLB3,)))
    async with running(settings(short_dir)):
        await kubelet.until(lambda: sum(kubelet.allocatable.values()) == 2)
        for _ in range(3):
            before = methods(kubelet).count("Registered")
            deleted = kubelet.delete_sockets()
            assert len(deleted) == 2
            await registered_again(kubelet, before + 2)
            await kubelet.until(lambda: sum(kubelet.allocatable.values()) == 2)


async def test_the_folder_may_be_removed_and_made_again(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec())
    async with running(settings(short_dir)):
        await offered(kubelet, 1)
        kubelet.remove_folder()
        await offered(kubelet, 0)
        await kubelet.restart()
        await offered(kubelet, 1)


async def test_a_stream_cut_with_no_change_in_the_folder_is_registered_again(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec())
    async with running(settings(short_dir)) as plugin:
        await offered(kubelet, 1)
        for _ in range(3):
            await eventually_async(lambda: state(plugin) is RegistrationState.REGISTERED)
            before = methods(kubelet).count("Registered")
            await kubelet.cut_stream(AF)
            await registered_again(kubelet, before + 1)
            await offered(kubelet, 1)
        # The old stream ended before the new registration: nothing takes the new one down.
        lost = methods(kubelet).count("Disconnected")
        with suppress(TimeoutError):
            await kubelet.until(lambda: methods(kubelet).count("Disconnected") > lost, 0.4)
        assert methods(kubelet).count("Disconnected") == lost
        assert kubelet.allocatable == {AF: 1}


async def test_a_refused_registration_is_tried_again_and_said_once(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rack.add_card(CardSpec())
    with kubelet.faulty(refuse="the node is not in the mood"):
        async with running(settings(short_dir)) as plugin:
            await kubelet.until(lambda: methods(kubelet).count("Register") >= 3)
            assert state(plugin) in {
                RegistrationState.FAILED,
                RegistrationState.REGISTERING,
                RegistrationState.WAITING,
            }
            expected = "the kubelet refuses the registration: UNKNOWN: the node is not in the mood"
            assert trouble(plugin) == expected
            status, text = await ready(plugin)
            assert status == 503
            assert expected in text
            kubelet.devices.faults.refuse = ""
            await offered(kubelet, 1)
            await eventually_async(lambda: trouble(plugin) == "")
    assert capsys.readouterr().out.count("[warning  ] registration failed") == 1


async def test_a_version_mismatch_is_called_one(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec())
    with kubelet.faulty(version="v2"):
        async with running(settings(short_dir)) as plugin:
            await eventually_async(lambda: "doesn't speak v1beta1" in trouble(plugin))
            assert "Supported version is" in trouble(plugin)
            assert "upgrade whichever of the two is older" in trouble(plugin)


async def test_what_its_last_card_leaves_is_a_capacity_of_nothing_even_if_the_stream_was_cut(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    card = rack.add_card(CardSpec())
    async with running(settings(short_dir)) as plugin:
        await offered(kubelet, 1)
        with kubelet.faulty(refuse="not now"):
            await kubelet.cut_stream(AF)
            rack.remove_card(card)
            await eventually_async(lambda: plugin.state.advertised.resources == {})
        await kubelet.until(lambda: not any(kubelet.capacity.values()))


async def test_of_two_plugins_the_second_waits_through_restarts_of_the_kubelet(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec())
    folder = short_dir / "k/device-plugins"
    seen = set()

    async with AsyncExitStack() as stack:
        async with running(settings(short_dir)):
            await offered(kubelet, 1)
            other = settings(short_dir, ports_file=short_dir / "second")
            second = await stack.enter_async_context(running(other))
            await eventually_async(lambda: second.single_instance.waits_for)
            for _ in range(3):
                seen |= {path.name.split("-")[1] for path in folder.glob("accelbind-*.sock")}
                await kubelet.restart()
                await offered(kubelet, 1)
            assert (await ready(second))[0] == 503
        assert len(seen) == 1, "all sockets were the first one's"
        await offered(kubelet, 0)
        await offered(kubelet, 1)
        assert await is_ready(second)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"kubelet_dir": Path("/tmp") / ("d" * 90)}, "too long for a unix socket's path"),
        ({"ports_file": Path("/gone/ports")}, "can't write the ports file /gone/ports"),
    ],
)
async def test_what_stands_in_the_way_of_a_start_is_an_error(
    short_dir: Path, values: dict[str, Any], text: str
) -> None:
    with pytest.raises(AccelbindError, match=text):
        await Plugin(settings(short_dir, **values)).serve(asyncio.Event())


async def test_a_real_cards_snapshot_is_offered(short_dir: Path, kubelet: KubeletStandIn) -> None:
    with tarfile.open(require_shared("hardware", "mock_sys_tmp-1socket-nlb0.tar.gz")) as archive:
        # It holds links to absolute paths, which discovery must not follow out of the root.
        archive.extractall(short_dir / "snapshot", filter="fully_trusted")  # noqa: S202 - ours
    root = short_dir / "snapshot/tmp"
    tree = advertise(scan(root), PluginMode.AF)
    wanted = {
        resource: sum(device.healthy for device in devices.values())
        for resource, devices in tree.resources.items()
    }
    async with running(settings(short_dir, root=root)) as plugin:
        await eventually_async(lambda: is_ready(plugin))
        await kubelet.until(lambda: kubelet.allocatable == wanted)


async def test_a_registration_that_hangs_is_given_up_and_tried_again(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "REGISTER_SECONDS", 0.1)
    rack.add_card(CardSpec())
    async with running(settings(short_dir)) as plugin:
        with kubelet.faulty(hang=True):
            await eventually_async(lambda: "doesn't answer a registration" in trouble(plugin))
        await offered(kubelet, 1)


async def test_a_kubelet_that_restarts_while_a_registration_hangs_gets_another(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec())
    async with running(settings(short_dir)):
        with kubelet.faulty(hang=True):
            await kubelet.until(lambda: "Register" in methods(kubelet))
            restarting = asyncio.create_task(kubelet.restart())
            await restarting
        await offered(kubelet, 1)


class Deaf(rpc.RegistrationServicer):
    """A kubelet that takes every registration and never asks for the devices.

    Whom it gives less than `needs` seconds doesn't live to see its answer.
    """

    def __init__(self) -> None:
        self.taken = 0
        self.answered = 0
        self.needs = 0.0
        self.answering = asyncio.Event()
        self.answering.set()

    async def Register(  # noqa: N802 - the protocol's name
        self,
        request: pb.RegisterRequest,  # noqa: ARG002 - the signature of the service
        context: grpc.aio.ServicerContext[pb.RegisterRequest, pb.Empty],
    ) -> pb.Empty:
        self.taken += 1
        if (context.time_remaining() or 0) < self.needs:
            await asyncio.Event().wait()
        await self.answering.wait()
        self.answered += 1
        return pb.Empty()


@asynccontextmanager
async def deaf_kubelet(folder: Path) -> AsyncIterator[Deaf]:
    plugins_folder(folder / "k").mkdir(parents=True)
    deaf, server = Deaf(), grpc.aio.server()
    rpc.add_RegistrationServicer_to_server(deaf, server)
    listen(server, registration_socket(folder / "k"))
    await server.start()
    try:
        yield deaf
    finally:
        deaf.answering.set()
        await server.stop(0)


def make_look_new(folder: Path) -> None:
    """Makes the kubelet's socket look like another one's."""
    os.utime(registration_socket(folder / "k"), (1, 1))


async def test_a_registration_that_nothing_comes_of_is_tried_again(
    short_dir: Path, rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "OPEN_SECONDS", 0.05)
    rack.add_card(CardSpec())
    async with deaf_kubelet(short_dir) as deaf, running(settings(short_dir)) as plugin:
        await eventually_async(lambda: deaf.taken >= 2)
        assert "hasn't asked for the devices within" in trouble(plugin)


async def test_a_kubelet_that_is_too_slow_gets_longer_each_time(
    short_dir: Path, rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "REGISTER_SECONDS", 0.5)
    rack.add_card(CardSpec())
    async with deaf_kubelet(short_dir) as deaf:
        deaf.needs = 1.5
        async with running(settings(short_dir)):
            await eventually_async(lambda: deaf.answered >= 1)
    assert deaf.taken >= 3


async def test_another_kubelet_is_registered_with_before_the_first_has_answered(
    short_dir: Path, rack: Rack
) -> None:
    rack.add_card(CardSpec())
    async with deaf_kubelet(short_dir) as deaf, running(settings(short_dir)) as plugin:
        deaf.answering.clear()
        await eventually_async(lambda: deaf.taken == 1)
        make_look_new(short_dir)
        await eventually_async(lambda: deaf.taken == 2)
        assert trouble(plugin) == "the kubelet restarted during the registration"


async def test_another_kubelet_is_registered_with_before_the_first_has_asked(
    short_dir: Path, rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "STABLE_SECONDS", 0)
    rack.add_card(CardSpec())
    async with deaf_kubelet(short_dir) as deaf, running(settings(short_dir)):
        await eventually_async(lambda: deaf.taken == 1)
        make_look_new(short_dir)
        await eventually_async(lambda: deaf.taken == 2)


@pytest.mark.parametrize("served", [True, False])
async def test_a_mounted_folder_that_was_removed_ends_the_plugin(
    short_dir: Path, rack: Rack, served: bool
) -> None:
    rack.add_card(CardSpec())
    host = short_dir / "host"
    host.mkdir()
    (short_dir / "k").mkdir()
    folder = os.open(host, os.O_RDONLY)
    try:  # such a link leads to a folder that was removed, as a mount does
        plugins_folder(short_dir / "k").symlink_to(f"/proc/self/fd/{folder}")
        plugin = Plugin(settings(short_dir))
        if not served:
            shutil.rmtree(host)
        task = asyncio.create_task(plugin.serve(asyncio.Event()))
        if served:
            await eventually_async(lambda: state(plugin) is RegistrationState.WAITING)
            shutil.rmtree(host)
        async with asyncio.timeout(60):
            with pytest.raises(KubeletError, match="was removed on the host"):
                await task
    finally:
        os.close(folder)


async def test_a_folder_that_can_not_be_written_says_so_and_is_tried_again(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack.add_card(CardSpec())

    def denied(_server: grpc.aio.Server, path: Path) -> NoReturn:
        raise KubeletError(f"can't make the socket {path}")

    with monkeypatch.context() as patch:
        patch.setattr(server, "listen", denied)
        async with running(settings(short_dir)) as plugin:
            await eventually_async(lambda: "can't make the socket" in trouble(plugin))
            patch.undo()
            await offered(kubelet, 1)


async def test_cards_come_and_go_while_it_runs(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    first = rack.add_card(CardSpec())
    async with running(settings(short_dir)) as plugin:
        await offered(kubelet, 1)
        second = rack.add_card(CardSpec())
        await offered(kubelet, 2)
        rack.remove_card(first)
        await offered(kubelet, 1)
        rack.remove_card(second)
        await kubelet.until(lambda: kubelet.capacity == {AF: 0})
        status, text = await ready(plugin)
        assert (status, text.splitlines()[0]) == (200, "ok: nothing to register")
        rack.add_card(CardSpec())
        await offered(kubelet, 1)
        assert methods(kubelet).count("Registered") == 1, "the endpoint had only been idle"


async def test_a_resource_without_devices_is_not_registered_with_a_new_kubelet(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    card = rack.add_card(CardSpec())
    async with running(settings(short_dir)) as plugin:
        await offered(kubelet, 1)
        rack.remove_card(card)
        await kubelet.until(lambda: kubelet.capacity == {AF: 0})
        await kubelet.restart()
        await eventually_async(lambda: state(plugin) is RegistrationState.IDLE)
        rack.add_card(CardSpec())
        await offered(kubelet, 1)


async def test_errors_that_a_container_left_are_cleared_once_nobody_has_the_port(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    address = rack.add_card(CardSpec("opae"))
    async with running(settings(short_dir)) as plugin:
        cleared = partial(plugin.registry.get_sample_value, "accelbind_errors_cleared_total")
        await offered(kubelet, 1)
        admitted = await kubelet.admit(pod("p", container("c", AF)))
        await kubelet.settled(admitted)
        rack.break_(address, Fault.PORT_ERRORS)
        await offered(kubelet, 0)
        assert cleared({"outcome": "cleared"}) == 0
        await kubelet.delete_pod(admitted)
        await eventually_async(lambda: cleared({"outcome": "cleared"}) == 1)
        rack.heal(address, Fault.PORT_ERRORS)  # as the driver does
        await offered(kubelet, 1)
        rack.break_(address, Fault.PORT_ERRORS)  # without a container
        await offered(kubelet, 0)
        looks = plugin.registry.get_sample_value("accelbind_scan_seconds_count")
        await eventually_async(
            lambda: plugin.registry.get_sample_value("accelbind_scan_seconds_count") != looks
        )
        assert cleared({"outcome": "cleared"}) == 1


async def test_a_card_that_comes_or_goes_with_a_uevent_is_streamed_at_once(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str], None],
) -> None:
    kernel, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    follow = partial(follow_card_events, connect=lambda: ours)
    monkeypatch.setattr("plugin.mode_serving.follow_card_events", follow)
    rack.add_card(CardSpec())
    took = []
    with kernel:
        async with running(settings(short_dir, scan_interval=3600)):
            await offered(kubelet, 1)
            for _ in range(3):
                address = rack.add_card(CardSpec())
                kernel.send(b"add@/devices/x\0ACTION=add\0SUBSYSTEM=fpga_region\0")
                took.append(await seconds_until(offered(kubelet, 2)))
                rack.remove_card(address)
                kernel.send(b"remove@/devices/x\0ACTION=remove\0SUBSYSTEM=fpga_region\0")
                took.append(await seconds_until(offered(kubelet, 1)))
    figure(f"on the stream after {median(took) * 1000:.0f} ms (median), {max(took) * 1000:.0f} ms")


async def test_a_port_that_breaks_is_unhealthy_and_heals(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    card = rack.add_card(CardSpec())
    rack.add_card(CardSpec())
    async with running(settings(short_dir)):
        await offered(kubelet, 2)
        rack.break_(card, Fault.AFU_EMPTY)
        await offered(kubelet, 1)
        assert kubelet.capacity == {AF: 2}, "a port that goes bad keeps its resource"
        rack.heal(card, Fault.AFU_EMPTY)
        await offered(kubelet, 2)


async def test_a_port_with_another_function_moves_to_another_resource(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    card = rack.add_card(CardSpec())
    async with running(settings(short_dir)):
        await offered(kubelet, 1)
        rack.set_afu(card, NLB3)
        await kubelet.until(lambda: sorted(kubelet.allocatable.values()) == [0, 1])
        assert kubelet.allocatable[AF] == 0


async def test_units_need_no_cards(short_dir: Path, kubelet: KubeletStandIn) -> None:
    async with running(settings(short_dir, PluginMode.UNITS, units=7)):
        await offered(kubelet, 7, "b-com.com/accelerator")


async def test_no_driver_is_said_once_and_looked_for_again(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with running(settings(short_dir)) as plugin:
        await eventually_async(lambda: plugin.state.inventory is not None)
        before = plugin.metrics._scan._sum.get()
        await eventually_async(lambda: plugin.metrics._scan._sum.get() > before)
        status, text = await ready(plugin)
        assert status == 200
        assert "load the driver" in text
        assert methods(kubelet) == []
        rack.add_card(CardSpec())
        await offered(kubelet, 1)
    out = capsys.readouterr().out
    assert out.count("load the driver") == 1
    assert out.count("problem of the node is gone") == 1


async def test_nothing_is_left_running(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec())
    await asyncio.sleep(0)
    before = asyncio.all_tasks()
    for _ in range(3):
        async with running(settings(short_dir)):
            await offered(kubelet, 1)
        await offered(kubelet, 0)
    await eventually_async(lambda: len(asyncio.all_tasks() - before) <= 1)


async def test_a_socket_that_this_user_may_not_use_is_no_kubelet_that_is_away() -> None:
    said = "connect failed: unix:/k/kubelet.sock error: Permission denied"
    nothing = grpc.aio.Metadata()
    error = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, details=said)
    text = explain(error, Path("/k/kubelet.sock"))
    assert text.startswith("this user may not write to /k/kubelet.sock")
