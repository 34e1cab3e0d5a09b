import signal
from pathlib import Path

from simulator.devices import DeviceTree
from tests.accelbind.running import run
from tests.support import Process, Processes, eventually


def processes_naming(folder: Path) -> list[str]:
    """Command lines, of whatever process, in which a folder is named."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has just ended
            continue
        if str(folder) in line:
            lines.append(line)
    return lines


def start(processes: Processes, folder: Path, *options: str | Path) -> Process:
    """The demo, as a process that keeps its temporary files in a folder."""
    environment = {"TMPDIR": str(folder), "TERM": "dumb", "COLUMNS": "80"}
    return processes.accelbind("demo", *options, env=environment)


MODEM = """\
apiVersion: accelbind.dev/v1alpha1
kind: DeviceType
metadata: {name: modem}
spec:
  match: [{usb: {vendor: ["2c7c"]}}]
  nodes: [{class: tty, as: /dev/modem0, env: MODEM}]
  resource: {domain: device.accelbind.dev, name: modem}
"""


def test_a_pod_of_the_demo_gets_the_device_of_a_vendor(tmp_path: Path) -> None:
    tree, types = DeviceTree(tmp_path / "root"), tmp_path / "types"
    types.mkdir()
    folder = tree.usb("3-1.2", "2c7c:0125", "bus/usb/003/004", "189:259")
    tree.entry(f"{folder}/3-1.2:1.2", "tty", "ttyUSB2", "188:2")
    (types / "modem.yaml").write_text(MODEM)
    (types / "other.yaml").write_text(MODEM.replace("modem", "other").replace("2c7c", "2c7d"))
    done = run("demo", "--device-types", types, "--root", tree.root)
    assert done.returncode == 0, done.stdout
    assert "/dev/modem0 rw on node-types" in done.stdout
    assert "MODEM=/dev/modem0" in done.stdout
    assert "1 of 1 pod ran" in done.stdout
    assert "device type other matches nothing: no USB device of vendor 2c7d" in done.stderr


def test_an_interrupted_demo_leaves_nothing(processes: Processes, short_dir: Path) -> None:
    """While it starts; tests/docs/test_kept ends one that is kept."""
    demo = start(processes, short_dir)
    eventually(lambda: len(processes_naming(short_dir)) >= 6, timeout=200, what="its processes")
    demo.popen.send_signal(signal.SIGTERM)
    assert demo.wait(200) == 130, demo.transcript()
    assert processes_naming(short_dir) == []
    assert list(short_dir.iterdir()) == []
