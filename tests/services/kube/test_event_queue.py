"""What waits to be written as Events, and what is remembered."""

from services.kube.event_queue import (
    DROPPED,
    SUPERSEDED,
    EventQueue,
    Happening,
    Involved,
    Series,
    node,
)

NODE = node("n1")


def happening(subject: str, reason: str = "Bad", message: str = "m") -> Happening:
    return Happening(NODE, subject, reason, message)


class Queue(EventQueue):
    """A queue that notes what it counts."""

    def __init__(self, waiting: int = 10, remembered: int = 10) -> None:
        self.counts: list[str] = []
        super().__init__(self.counts.append, waiting=waiting, remembered=remembered)

    def all(self) -> list[Series]:
        found = []
        while (series := self.take()) is not None:
            found.append(series)
        return found


def test_a_node_is_named_as_kubectl_looks_for_it() -> None:
    assert Involved("Node", "n1", namespace="", uid="n1", api_version="v1") == NODE


def test_what_happens_again_is_one_series_with_a_count_and_its_times() -> None:
    queue = Queue()
    for now in (10.0, 20.0, 30.0):
        queue.put(happening("port", message=f"at {now}"), now)
    [series] = queue.all()
    assert (series.count, series.first, series.last) == (3, 10.0, 30.0)
    assert series.latest.message == "at 30.0"
    assert queue.counts == [SUPERSEDED, SUPERSEDED]


def test_of_a_subject_only_the_latest_state_waits() -> None:
    queue = Queue()
    queue.put(happening("a", "Bad"), 1)
    queue.put(happening("b", "Bad"), 2)
    queue.put(happening("a", "Good"), 3)
    assert [(each.latest.subject, each.latest.reason) for each in queue.all()] == [
        ("a", "Good"),
        ("b", "Bad"),
    ]
    assert queue.counts == [SUPERSEDED]


def test_a_series_goes_on_after_another_state_was_written_in_between() -> None:
    queue = Queue()
    seen = []
    for reason in ("Bad", "Good", "Bad"):
        queue.put(happening("a", reason), 1)
        [series] = queue.all()
        queue.written(series, f"object-{reason}", 2)
        assert queue.shown(series)
        seen.append((series.name, series.count))
    assert seen == [("object-Bad", 1), ("object-Good", 1), ("object-Bad", 2)]


def test_what_waits_is_bounded_and_the_oldest_is_dropped() -> None:
    queue = Queue(waiting=2)
    for subject in "abc":
        queue.put(happening(subject), 1)
    assert len(queue) == 2
    assert [each.latest.subject for each in queue.all()] == ["b", "c"]
    assert queue.counts == [DROPPED]


def test_what_could_not_be_written_is_next_again_unless_there_is_something_newer() -> None:
    queue = Queue()
    queue.put(happening("a"), 1)
    queue.put(happening("b"), 1)
    first = queue.take()
    assert first is not None
    queue.put_back(first)
    assert [each.latest.subject for each in queue.all()] == ["a", "b"]
    queue.put(happening("a", "Good"), 2)
    queue.put_back(first)
    assert [each.latest.reason for each in queue.all()] == ["Good"]
    assert queue.counts == [SUPERSEDED]


def test_what_is_remembered_is_bounded() -> None:
    queue = Queue(waiting=10, remembered=2)
    for subject in "abc":
        queue.put(happening(subject), 1)
        series = queue.take()
        assert series is not None
        queue.written(series, "object", 2)
    queue.put(happening("a"), 3)
    [again] = queue.all()
    assert (again.count, again.name, queue.shown(again)) == (1, "", False)
