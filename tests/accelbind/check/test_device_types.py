"""`accelbind check device-types`, on folders with files that are bent or hostile."""

import json
from pathlib import Path

import pytest

from tests.accelbind.running import Done, run
from tests.services.devices.types.making import ENGINE

FIRST = "# a comment, so that the document starts on line 2\n"

BENT = {
    # what is replaced, by what, and the field that is named
    "version": ("v1alpha1", "v1", "apiVersion"),
    "other-kind": ("kind: DeviceType", "kind: DeviceDriver", "kind"),
    "no-resource": ("  resource: {domain: device.accelbind.dev, name: ve}\n", "", "spec"),
    "number": ('"1bcf"', "1234", "spec.match[0].pci.vendor[0]"),
    "text": ('["1bcf"]', '"1bcf"', "spec.match[0].pci.vendor"),
    "empty-term": ('{pci: {vendor: ["1bcf"], device: ["001c"]}}', "{}", "spec.match[0]"),
    "no-terms": ('[{pci: {vendor: ["1bcf"], device: ["001c"]}}]', "[]", "spec.match"),
    "up": ("ve/ve*/ve_state", "../../../../etc/shadow", "spec.attributes[0].file"),
    "absolute": ("ve/ve*/ve_state", "/etc/shadow", "spec.attributes[0].file"),
    "hidden-up": ("ve/ve*/ve_state", "ve/../state", "spec.attributes[0].file"),
    "reserved": ("name: state", "name: numaNode", "spec.attributes[0].name"),
    "reserved-class": ("name: state", "name: class", "spec.attributes[0].name"),
    "identifier": ("name: state", "name: ve-state", "spec.attributes[0].name"),
    "other-type": ("equals: 1", 'equals: "1"', "spec.health[0]"),
    "two-ways": ("equals: 1", "equals: 1, oneOf: [1]", "spec.health[0]"),
    "two-limits": ("equals: 1", "equals: 1, max: 3", "spec.health[0]"),
    "no-range": ("equals: 1", "min: 3, max: 1", "spec.health[0].min"),
    "limit-of-text": (
        "type: int}\n    - {name: osState",
        "type: string}\n    - {name: osState",
        "spec.health[0]",
    ),
    "reason": ("not-online", "node-missing", "spec.health[0].reason"),
    "mknod": ("{class: ve}", "{class: ve, permissions: rwm}", "spec.nodes[0].permissions"),
    "block": ("{class: ve}", "{class: block}", "spec.nodes[0].class"),
    "own": ("[{class: ve}]", "[{own: true}]", "spec.nodes"),
    "other-domain": ("device.accelbind.dev", "example.com", "spec.resource.domain"),
    "fpga-domain": ("device.accelbind.dev", "fpga.intel.com", "spec.resource.domain"),
    "long-name": ("name: ve}", f"name: {'x' * 64}}}", "spec.resource.name"),
    "preload": ("VE_NODE", "LD_PRELOAD", "spec.env[0].name"),
    "replicas": ("  env:", "  sharing: {replicas: 0}\n  env:", "spec.sharing.replicas"),
    "no-id": ('{vendor: ["1bcf"], device: ["001c"]}', "{driver: [ve_drv]}", "spec.match[0].pci"),
    "two-kinds": ("{pci:", '{path: ["/dev/ve0"], pci:', "spec.match[0]"),
    "no-source": ("{class: ve}", "{optional: true}", "spec.nodes[0]"),
    "bare-kind": ("[{class: ve}]", "[{vfio: true, kind: render}]", "spec.nodes[0].kind"),
    "domain": ("device.accelbind.dev", "Device", "spec.resource.domain"),
    "no-value": (", attribute: numaNode", "", "spec.env[0]"),
    "two-attributes": ("name: osState", "name: state", "spec.attributes[1].name"),
    "vfio-and": ("[{class: ve}]", "[{class: ve}, {vfio: true}]", "spec.nodes"),
    "shared-vfio": (
        "[{class: ve}]",
        "[{vfio: true}]\n  sharing: {replicas: 2}",
        "spec.sharing.replicas",
    ),
    "line-feed": ("VE_NODE", '"PATH\\n"', "spec.env[0].name"),
    "optional-vfio": ("[{class: ve}]", "[{vfio: true, optional: true}]", "spec.nodes[0].optional"),
    "one-variable": (
        "domain: device.accelbind.dev, name: ve}",
        "domain: device.accelbind.dev, name: Ve}",
        "spec.resource.name",
    ),
    "as-relative": ("{class: ve}", "{class: ve, as: ve0}", "spec.nodes[0].as"),
    "as-up": ("{class: ve}", "{class: ve, as: /dev/../etc/x}", "spec.nodes[0].as"),
    "as-folder": ("{class: ve}", "{class: ve, as: /dev/}", "spec.nodes[0].as"),
    "as-pattern": ("{class: ve}", "{class: ve, as: /dev/ve*}", "spec.nodes[0].as"),
    "as-null": ("{class: ve}", "{class: ve, as: /dev/null}", "spec.nodes[0].as"),
    "as-terminal": ("{class: ve}", "{class: ve, as: /dev/pts/0}", "spec.nodes[0].as"),
    "as-twice": (
        "[{class: ve}]",
        "[{class: ve, as: /dev/a}, {class: tty, as: /dev/a}]",
        "spec.nodes[1].as",
    ),
    "as-below": (
        "[{class: ve}]",
        "[{class: ve, as: /dev/a/b}, {class: tty, as: /dev/a}]",
        "spec.nodes[1].as",
    ),
    "as-vfio": ("[{class: ve}]", "[{vfio: true, as: /dev/a}]", "spec.nodes[0].as"),
    "bare-entry": ("[{class: ve}]", "[{vfio: true, entry: [a]}]", "spec.nodes[0].entry"),
    "node-variable": ("{class: ve}", "{class: ve, env: LD_PRELOAD}", "spec.nodes[0].env"),
    "two-of-node": ("{class: ve}", "{class: ve, env: VE_NODE}", "spec.nodes[0].env"),
    "each-vfio": ("[{class: ve}]", "[{vfio: true}]\n  each: node", "spec.each"),
    "second": ("# a comment", "# a comment", "metadata.name"),
}
MATCHES = {
    "mem": ('path: ["/dev/mem"]', ".path[0]"),
    "mem-elsewhere": ('path: ["/dev/../dev/mem"]', ".path[0]"),
    "disk": ('path: ["/dev/sda"]', ".path[0]"),
    "generic-disk": ('path: ["/dev/sg0"]', ".path[0]"),
    "glob-disk": ('path: ["/dev/ttyUSB0", "/dev/s*"]', ".path[1]"),
    "other-disks": ('path: ["/dev/sdz*"]', ".path[0]"),
    "other-generic-disks": ('path: ["/dev/sg1*"]', ".path[0]"),
    "disk-by-id": ('path: ["/dev/disk/by-id/*"]', ".path[0]"),
    "raw-disk": ('path: ["/dev/raw/raw1"]', ".path[0]"),
    "terminal": ('path: ["/dev/pts/0"]', ".path[0]"),
    "standard-input": ('path: ["/dev/stdin"]', ".path[0]"),
    "other-consoles": ('path: ["/dev/tty1*"]', ".path[0]"),
    "many": (f"path: {['/dev/zz0'] * 17}", ".path"),
    "glob-all": ('path: ["/dev/*"]', ".path[0]"),
    "vfio": ('path: ["/dev/vfio/12"]', ".path[0]"),
    "management": ('path: ["/dev/xclmgmt*"]', ".path[0]"),
    "shadow": ('path: ["/etc/shadow"]', ".path[0]"),
    "mem-class": ("class: {name: mem}", ".class.name"),
    "watchdog": ("class: {name: watchdog}", ".class.name"),
}


def checked(folder: Path, *arguments: str) -> tuple[Done, list[tuple[str, int, str]], list[str]]:
    done = run("check", "device-types", folder, "-o", "json", *arguments)
    report = json.loads(done.stdout)
    found = [(each["file"], each["line"], each["field"]) for each in report["findings"]]
    return done, found, [each["name"] for each in report["types"]]


def test_files_that_can_not_be_used_are_named_and_the_others_served(tmp_path: Path) -> None:
    (tmp_path / "a-good.yaml").write_text(ENGINE)
    expected = []
    for name, (old, new, field) in BENT.items():
        assert old in FIRST + ENGINE
        text = (FIRST + ENGINE).replace(old, new, 1)
        unique = text if name == "second" else text.replace("vector-engine", name)
        (tmp_path / f"{name}.yaml").write_text(unique)
        expected.append((f"{name}.yaml", 2, field))
    for name, (match, field) in MATCHES.items():
        term = (
            f"spec: {{match: [{{{match}}}], resource: {{domain: device.accelbind.dev, name: x}}}}"
        )
        head = ENGINE.partition("spec:")[0].replace("vector-engine", name)
        (tmp_path / f"{name}.yaml").write_text(FIRST + head + term)
        expected.append((f"{name}.yaml", 2, f"spec.match[0]{field}"))
    done, found, types = checked(tmp_path)
    assert done.returncode == 1
    named: dict[str, str] = {}
    for file, _, field in found:
        named.setdefault(file, field)
    assert named == {file: field for file, _, field in expected}
    assert types == ["vector-engine"]


@pytest.mark.parametrize(
    ("first", "second", "field"),
    [
        ("nodes: [{class: ve, as: /dev/a}]", "nodes: [{class: ve, as: /dev/a}]", "nodes[0].as"),
        ("nodes: [{class: ve, as: /dev/a}]", "nodes: [{class: ve, as: /dev/a/b}]", "nodes[0].as"),
        ("nodes: [{class: ve, as: /dev/a}]", "nodes: [{class: ve, as: /dev/ab}]", ""),
        ("nodes: [{class: ve, as: /dev/a}]", 'match: [{path: ["/dev/a"]}]', "match[0].path[0]"),
        ('match: [{path: ["/dev/a"]}]', "nodes: [{class: ve, as: /dev/a}]", "nodes[0].as"),
        ('match: [{path: ["/dev/a"]}]', 'match: [{path: ["/dev/a"]}]', ""),
    ],
)
@pytest.mark.parametrize("resource", ["b", "a"])
def test_two_types_of_different_resources_do_not_have_one_path_in_containers(
    tmp_path: Path, first: str, second: str, field: str, resource: str
) -> None:
    for name, text, of in (("a", first, "a"), ("b", second, resource)):
        match = "" if "match" in text else "  match: [{class: {name: ve}}]\n"
        (tmp_path / f"{name}.yaml").write_text(
            f"apiVersion: accelbind.dev/v1alpha1\nkind: DeviceType\nmetadata: {{name: {name}}}\n"
            f"spec:\n  resource: {{domain: device.accelbind.dev, name: {of}}}\n{match}  {text}\n"
        )
    _, found, types = checked(tmp_path)
    expected = f"spec.{field}" if field and resource == "b" else ""
    assert [each for _, _, each in found] == [expected] * bool(expected)
    assert types == ["a"] + ["b"] * (not expected)


@pytest.mark.parametrize(
    ("match", "nodes", "word", "fields"),
    [
        ("class: {name: hidraw}", "own: true", "hidraw", ["match[0].class.name"]),
        ('path: ["/dev/hidraw*"]', "own: true", "hidraw", ["match[0].path[0]"]),
        ("class: {name: tty}", "class: tpm", "tpm", ["nodes[0].class"]),
    ],
)
def test_classes_that_need_the_setting_of_the_plugin_are_named(
    tmp_path: Path, match: str, nodes: str, word: str, fields: list[str]
) -> None:
    head = ENGINE.partition("spec:")[0]
    spec = "resource: {domain: device.accelbind.dev, name: x}"
    text = f"{head}spec: {{match: [{{{match}}}], nodes: [{{{nodes}}}], {spec}}}"
    (tmp_path / "a.yaml").write_text(text)
    done, found, _ = checked(tmp_path)
    assert [each for _, _, each in found] == [f"spec.{each}" for each in fields]
    assert f"with --allow-nodes={word} only" in done.stdout
    assert checked(tmp_path, "--allow-nodes", word)[0].returncode == 0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 0),
        ("- a\n- b\n", 1),
        (ENGINE + "---\n" + ENGINE, ENGINE.count("\n") + 2),
        ("a: &x [*x]\n", 1),
        ("\x00\xff", 1),
        ("[" * 200, 1),
        (ENGINE + "# " + "x" * 70_000, 0),
    ],
)
def test_files_that_are_no_yaml_are_named(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "bent.yaml").write_bytes(text.encode("latin-1"))
    (tmp_path / "good.yaml").write_text(ENGINE)
    done, found, types = checked(tmp_path)
    assert (done.returncode, found, types) == (1, [("bent.yaml", line, "")], ["vector-engine"])


def test_links_may_lead_nowhere_but_into_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    (folder / "..2026_11_24").mkdir(parents=True)
    (folder / "..2026_11_24" / "ve.yaml").write_text(ENGINE)
    (folder / "..data").symlink_to("..2026_11_24")
    (folder / "ve.yaml").symlink_to("..data/ve.yaml")
    assert checked(folder)[1:] == ([], ["vector-engine"])
    (tmp_path / "outside.yaml").write_text(ENGINE.replace("vector-engine", "outside"))
    (folder / "away.yaml").symlink_to("../outside.yaml")
    (folder / "loop.yaml").symlink_to("loop.yaml")
    (folder / "nowhere.yaml").symlink_to("gone")
    (folder / "folder.yaml").mkdir()
    done, found, types = checked(folder)
    bent = ["away.yaml", "folder.yaml", "loop.yaml", "nowhere.yaml"]
    assert (done.returncode, found) == (1, [(each, 0, "") for each in bent])
    assert types == ["vector-engine"]


def test_it_prints_tables(tmp_path: Path) -> None:
    (tmp_path / "ve.yaml").write_text(ENGINE)
    done = run("check", "device-types", tmp_path)
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        [
            "TYPE            RESOURCE",
            "vector-engine   device.accelbind.dev/ve",
            "1 device type: no findings",
        ],
    )
    (tmp_path / "b.yaml").write_text(ENGINE.replace("equals: 1", "equals: x"))
    done = run("check", "device-types", tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines()[2:] == [
        "FILE     LINE   FIELD            WHAT",
        (
            "b.yaml   10     spec.health[0]   equals is of type string, and state of int; declare"
            " it with type: string"
        ),
        "1 device type: 1 finding",
    ]


def test_domains_are_allowed_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "ve.yaml").write_text(ENGINE.replace("device.accelbind.dev", "nec.com"))
    assert checked(tmp_path)[1] == [("ve.yaml", 13, "spec.resource.domain")]
    assert checked(tmp_path, "--resource-domain", "nec.com")[1:] == ([], ["vector-engine"])


FAULTY = """\
apiVersion: accelbind.dev/v1alpha1
kind: DeviceType
metadata: {name: X}
spec:
  mount: /x
  match:
    - pci: {vendor: ["8086"], devise: ["1234"]}
    - pci:
        vendor: ["0x8086"]
  attributes:
    - {name: state, file: state, type: float}
    - {name: other, file: other}
  health: [{attribute: stat, equals: 1, reason: bad}]
  nodes: {own: true}
  env: [{name: 7, value: a}]
  sharing: {replicas: 200}
  resource: {domain: device.accelbind.dev}
status: {}
"""
NAME = "a name of lower-case letters, digits and - that starts with a letter, other than fpga"


def test_all_findings_of_a_file_have_their_lines_in_words(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(FAULTY)
    expected = [
        (3, "metadata.name", f"must be {NAME}"),
        (
            *(5, "spec.mount"),
            (
                "there is no such field; there are match, resource, attributes, health, nodes,"
                " each, env and sharing"
            ),
        ),
        (7, "spec.match[0].pci.devise", "there is no such field; did you mean device?"),
        (
            *(9, "spec.match[1].pci.vendor[0]"),
            'must be four lower-case hex digits in quotes, such as "8086"',
        ),
        (11, "spec.attributes[0].type", "must be bool, int or string, not 'float'"),
        (14, "spec.nodes", "must be a list, in [], not an object, in {}"),
        (15, "spec.env[0].name", "must be text, not a whole number: put it into quotes"),
        (16, "spec.sharing.replicas", "must be at most 128"),
        (17, "spec.resource", "name is missing"),
        (18, "status", "there is no such field; there are apiVersion, kind, metadata and spec"),
    ]
    for path in (tmp_path, tmp_path / "x.yaml"):
        done = run("check", "device-types", path, "-o", "json")
        assert done.returncode == 1
        found = json.loads(done.stdout)["findings"]
        assert [(each["line"], each["field"], each["message"]) for each in found] == expected


def test_all_that_fields_are_together_is_found_at_once(tmp_path: Path) -> None:
    text = ENGINE.replace("attribute: state,", "attribute: stat,").replace(
        "numaNode}]", "numanode}, {name: VE_NODE, value: x}]"
    )
    (tmp_path / "x.yaml").write_text(text.replace("ve}]", "ve, kind: ve, env: PATH, as: /x}]"))
    _, found, _ = checked(tmp_path)
    assert [each for _, _, each in found] == ["spec.nodes[0].as", "spec.nodes[0].env"]
    (tmp_path / "x.yaml").write_text(text)
    _, found, _ = checked(tmp_path, "--resource-domain", "a.example")
    assert [each for _, _, each in found] == [
        "spec.health[0].attribute",
        "spec.env[0].attribute",
        "spec.env[1].name",
    ]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("attribute: state,", "attribute: stat,", 10, "not declared in attributes; did you mean s"),
        ("attribute: numaNode", "attribute: numanode", 14, "did you mean numaNode?"),
        ("{class: ve}", "ve", 12, "must be an object, in {}, not text"),
        ("equals: 1", "lessThan: 1", 10, "there are attribute, equals, oneOf, glob, min, max and"),
        ("equals: 1", 'max: "70"', 10, "must be a whole number, not text"),
        (
            *('ve_state", type: int', 've_state"', 10),
            "equals is of type int, and state of string; declare it with type: int",
        ),
        (
            *("attribute: state, equals", "attribute: vendorID, equals", 10),
            "equals is of type int, and vendorID of string",
        ),
        (
            *("VE_NODE", "PCI_RESOURCE_VE", 14),
            "KubeVirt finds device.accelbind.dev/ve by PCI_RESOURCE_DEVICE_ACCELBIND_DEV_VE",
        ),
        (
            *(
                "name: ve}\n  env: [{name: VE_NODE",
                "name: ve-1}\n  env: [{name: PCI_RESOURCE_VE",
                14,
            ),
            "KubeVirt finds no resource with -, such as device.accelbind.dev/ve-1; choose another",
        ),
        ("[{class: ve}]", f"[{'{class: ve}, ' * 9}]", 12, "must have at most 8 entries"),
        ("{class: ve}", "{class: ve, env: Y}", 12, "must be text, not true or false: put it into"),
        ("metadata:", "meta:", 1, "there is no such field; did you mean metadata?"),
        ("vector-engine", "x" * 50, 3, "must have at most 40 characters"),
    ],
)
def test_a_finding_says_what_would_be_right(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    (tmp_path / "x.yaml").write_text(ENGINE.replace(old, new, 1))
    done = run("check", "device-types", tmp_path / "x.yaml", "-o", "json")
    (found,) = json.loads(done.stdout)["findings"]
    assert message in found["message"]
    assert found["line"] == line or "meta" in new
