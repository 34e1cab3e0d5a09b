"""Which request is answered next."""

import asyncio

import pytest

from webhook.connections import Connection, Connections
from webhook.turns import LARGE, MOST, Turns


def connect(connections: Connections, size: int, client: str = "10.0.0.1") -> Connection:
    connection = connections.add(client)
    connection.close = lambda: None
    connections.hold(connection, size)
    return connection


@pytest.mark.parametrize(
    ("sizes", "order"),
    [
        pytest.param([9, 9, 9], [0, 1, 2], id="equal ones as they came"),
        pytest.param([LARGE, LARGE, LARGE, 1], [0, 3, 1, 2], id="a small one before large ones"),
        pytest.param([LARGE, 4 * LARGE, LARGE, 2 * LARGE], [0, 2, 1, 3], id="by size and time"),
    ],
)
def test_small_requests_go_before_large_ones(sizes: list[int], order: list[int]) -> None:
    async def play() -> list[int]:
        connections = Connections(most_held=1 << 40)
        turns, begun = Turns(connections), []

        async def request(number: int, size: int) -> None:
            await turns.wait(connect(connections, size))
            begun.append(number)

        async with asyncio.TaskGroup() as tasks:
            for number, size in enumerate(sizes):
                tasks.create_task(request(number, size))
        return begun

    assert asyncio.run(play()) == order


@pytest.mark.parametrize(
    ("client", "least", "most"),
    [
        pytest.param("10.0.0.1", 10, (MOST + 1) * 10, id="of the same address: a limited number"),
        pytest.param("10.0.0.2", 0, 2, id="of another address: one in turn"),
    ],
)
def test_small_requests_without_end_do_not_keep_out_a_large_one(
    client: str, least: int, most: int
) -> None:
    async def play() -> int:
        connections = Connections()
        turns, answered = Turns(connections), 0

        async def repeat() -> None:
            nonlocal answered
            small = connect(connections, 1)
            while True:
                await turns.wait(small)
                answered += 1

        flood = [asyncio.create_task(repeat()) for _ in range(10)]
        for _ in range(20):
            await asyncio.sleep(0)
        before = answered
        await turns.wait(connect(connections, 90 * LARGE, client))
        for each in flood:
            each.cancel()
        return answered - before

    assert least <= asyncio.run(play()) <= most


def test_many_addresses_do_not_keep_out_one_with_several_requests() -> None:
    async def play() -> int:
        connections = Connections()
        turns, answered = Turns(connections), 0

        async def repeat(client: str) -> None:
            nonlocal answered
            connection = connect(connections, 1, client)
            while True:
                await turns.wait(connection)
                answered += 1
                # The answer arrives, and the next request comes while others wait.
                await asyncio.sleep(0)
                await asyncio.sleep(0)

        flood = [asyncio.create_task(repeat(f"10.0.1.{each}")) for each in range(40)]
        for _ in range(100):
            await asyncio.sleep(0)
        before = answered
        burst = [connect(connections, 1, "10.0.0.1") for _ in range(10)]
        await asyncio.gather(*map(turns.wait, burst))
        for each in flood:
            each.cancel()
        return answered - before

    assert asyncio.run(asyncio.wait_for(play(), 20)) <= 41 * 11


def test_each_round_of_the_event_loop_begins_one_and_releases_those_that_were_closed() -> None:
    async def play() -> list[int]:
        connections = Connections()
        turns, begun = Turns(connections), []

        async def request(number: int, connection: Connection) -> None:
            await turns.wait(connection)
            begun.append(number)

        clients = [connect(connections, LARGE) for _ in range(4)]
        async with asyncio.TaskGroup() as tasks:
            for number, client in enumerate(clients):
                tasks.create_task(request(number, client))
            await asyncio.sleep(0)  # the tasks wait
            connections.remove(clients[3])
            await asyncio.sleep(0)  # a turn is given
            await asyncio.sleep(0)  # and used
            return sorted(begun)

    assert asyncio.run(play()) == [0, 3]
