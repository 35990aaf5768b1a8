"""Blocks and their workers: xdist's own event loop, with workers that are simulated and die."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_llmeval._session.scheduling import LESSONS
from pytest_llmeval._session.scheduling import BlockScheduling
from pytest_llmeval._session.scheduling import Lessons
from pytest_llmeval._session.scheduling import Scheduling
from pytest_llmeval._session.scheduling import blocks_of
from pytest_llmeval._session.scheduling import is_doc


pytest.importorskip("xdist")

#: Two tasks of which one is cut into three blocks of 8, gates, and a test of the user.
ITEMS = [
    *(f"t/long.yaml::doc[{i}]" for i in range(20)),
    "t/long.yaml::gate[acc]",
    *(f"t/short.yaml::doc[{i}]" for i in range(5)),
    "t/short.yaml::gate[acc]",
    "t/all.yaml::gate[acc]",
    "test_own.py::test_own",
]
SIZE = 8


def names(nodeids: Sequence[str], size: int | None, **options: Any) -> list[list[str]]:
    blocks = blocks_of(nodeids, size, **options)
    return [[nodeids[place].partition("/")[2] or nodeids[place] for place in block.items] for block in blocks]


def test_blocks_of_a_session() -> None:
    assert names(ITEMS, SIZE) == [
        [*(f"long.yaml::doc[{i}]" for i in range(8)), "long.yaml::gate[acc]"],
        [f"long.yaml::doc[{i}]" for i in range(8, 16)],
        [*(f"short.yaml::doc[{i}]" for i in range(5)), "short.yaml::gate[acc]"],
        [f"long.yaml::doc[{i}]" for i in range(16, 20)],
        ["all.yaml::gate[acc]"],
        ["test_own.py::test_own"],
    ]


def test_blocks_by_model_and_by_inline_task() -> None:
    """Model by model, though one name begins with the other; the tasks in a group's file are cut by themselves."""
    docs = [f"t/g.yaml::doc[{model}-{task}-{i}]" for model in ("a-b", "a") for task in ("x", "y") for i in range(3)]
    found = names([*docs, "t/g.yaml::gate[a-acc]", "t/g.yaml::gate[a-b-acc]"], 2, models=("a", "a-b"))
    assert [[name.removeprefix("g.yaml::") for name in block] for block in found] == [
        ["doc[a-x-0]", "doc[a-x-1]"],
        ["doc[a-y-0]", "doc[a-y-1]"],
        ["doc[a-x-2]"],
        ["doc[a-y-2]"],
        ["gate[a-acc]"],
        ["doc[a-b-x-0]", "doc[a-b-x-1]"],
        ["doc[a-b-y-0]", "doc[a-b-y-1]"],
        ["doc[a-b-x-2]"],
        ["doc[a-b-y-2]"],
        ["gate[a-b-acc]"],
    ]


@pytest.mark.parametrize(
    ("dist", "expected"),
    [
        ("load", [["a.py::T::x"], ["a.py::T::y"], ["a.py::z@g"], ["b.py::z@g"]]),
        ("loadscope", [["a.py::T::x", "a.py::T::y"], ["a.py::z@g"], ["b.py::z@g"]]),
        ("loadfile", [["a.py::T::x", "a.py::T::y", "a.py::z@g"], ["b.py::z@g"]]),
        ("loadgroup", [["a.py::z@g", "b.py::z@g"], ["a.py::T::x"], ["a.py::T::y"]]),
    ],
)
def test_other_tests_are_kept_together_as_dist_says(dist: str, expected: list[list[str]]) -> None:
    assert names(["a.py::T::x", "a.py::T::y", "a.py::z@g", "b.py::z@g"], SIZE, dist=dist) == expected


class Worker:
    """A worker of xdist that runs its items in waves of four docs, and dies where it is told to."""

    def __init__(self, loop: Loop, name: str) -> None:
        self.loop = loop
        self.gateway = SimpleNamespace(id=name, spec=SimpleNamespace(id=name))
        self.workerinput: dict[str, Any] = {}
        if loop.blocks:
            self.workerinput[LESSONS] = loop.blocks.lessons().to_list()
        self.lessons = Lessons.of(self.workerinput)
        self.torun: list[int | None] = []
        self.shutting_down = False
        self.answered = set(self.lessons.lost)
        self.alive = True
        self.state = "new"

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        assert self.alive
        self.torun += indices

    def shutdown(self) -> None:
        self.shutting_down = True
        self.torun.append(None)

    def can_act(self) -> bool:
        waits = self.state == "running" and len(self.torun) < 2 and self.torun[:1] != [None]
        return self.alive and not waits

    def act(self) -> None:
        put = self.loop.put
        if self.loop.random_death():
            self.die()
        elif self.state == "new":
            self.state = "ready"
            put("workerready", node=self, workerinfo={})
        elif self.state == "ready":
            self.state = "running"
            put("collectionfinish", node=self, ids=ITEMS)
        elif self.torun[0] is None:
            self.alive = False
            self.workeroutput = {"exitstatus": 0, "shouldfail": False, "shouldstop": False}
            put("workerfinished", node=self)
        else:
            self.run(self.torun[0])

    def run(self, place: int) -> None:
        name = ITEMS[place]
        if not (self.wave(name) - self.answered).isdisjoint(self.loop.deadly):
            self.die()
            return
        self.answered |= self.wave(name)
        self.torun.pop(0)
        if name not in self.lessons.silent:
            self.loop.reported[name] += 1
        self.loop.put("runtest_protocol_complete", node=self, item_index=place, duration=0.0)

    def wave(self, name: str) -> set[str]:
        """The item and the docs that are asked with it: up to three that follow in its block."""
        if not is_doc(name) or name in self.lessons.alone or name in self.answered:
            return {name}
        block = next(block for block in blocks_of(ITEMS, self.loop.size) if ITEMS.index(name) in block.items)
        docs = [ITEMS[one] for one in block.items if is_doc(ITEMS[one])]
        return {doc for doc in docs[docs.index(name) :][:4] if doc not in self.lessons.alone}

    def die(self) -> None:
        self.alive = False
        self.loop.deaths += 1
        self.loop.put("errordown", node=self, error="Not properly terminated")


class Loop:
    """xdist's `DSession` over such workers; it takes events from here."""

    def __init__(
        self, seed: int, deadly: Sequence[str], death_rate: float, size: int | None, restarts: int | None
    ) -> None:
        from xdist.dsession import DSession

        self.random, self.deadly, self.death_rate, self.size = random.Random(seed), set(deadly), death_rate, size
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.reported: Counter[str] = Counter()
        self.given_up: list[str] = []
        self.deaths = 0
        self.blocks: BlockScheduling | None = None
        self.session = session = object.__new__(DSession)
        nothing = SimpleNamespace(
            **{
                name: lambda **_: None
                for name in ("pytest_testnodeready", "pytest_testnodedown", "pytest_xdist_node_collection_finished")
            }
        )
        session.config = SimpleNamespace(hook=nothing, option=SimpleNamespace(verbose=-1))
        session.log = lambda *_: None
        session.terminal = None
        session.shuttingdown = session.shouldstop = False
        session._session = SimpleNamespace(testscollected=0)
        session._failed_nodes_count = 0
        session._max_worker_restart = restarts
        session._summary_report = None
        session.queue = SimpleNamespace(get=lambda timeout: self.next_event())
        session.handle_crashitem = lambda name, node: self.given_up.append(name)
        session._clone_node = lambda node: self.start()
        self.workers: list[Worker] = []
        session._active_nodes = set()
        session.sched = Scheduling(Plain(2), self.make, each=False)
        self.start()
        self.start()

    def start(self) -> Worker:
        self.workers.append(worker := Worker(self, f"gw{len(self.workers)}"))
        self.session._active_nodes.add(worker)
        return worker

    def make(self, collections: Any) -> BlockScheduling:
        self.blocks = BlockScheduling(collections, lambda names: blocks_of(names, self.size), each=False)
        return self.blocks

    def put(self, name: str, **values: Any) -> None:
        self.events.append((name, values))

    def random_death(self) -> bool:
        return self.random.random() < self.death_rate

    def next_event(self) -> tuple[str, dict[str, Any]]:
        while not self.events:
            ready = [worker for worker in self.workers if worker.can_act()]
            assert ready, "no worker can go on, and the loop waits for one"
            self.random.choice(ready).act()
        return self.events.pop(0)

    def run(self) -> Loop:
        while not self.session.session_finished:
            self.session.loop_once()
        return self


class Plain:
    """The scheduler of xdist before work is handed out."""

    def __init__(self, workers: int) -> None:
        self.nodes: list[Worker] = []
        self.collected = 0
        self.workers = workers
        self.tests_finished = self.has_pending = False

    @property
    def collection_is_completed(self) -> bool:
        return self.collected >= self.workers

    def add_node(self, node: Worker) -> None:
        self.nodes.append(node)

    def add_node_collection(self, node: Worker, names: Sequence[str]) -> None:
        self.collected += 1

    def remove_node(self, node: Worker) -> None:
        if node not in self.nodes:
            raise KeyError(node)
        self.nodes.remove(node)


@pytest.mark.parametrize("size", [SIZE, None], ids=["cut", "whole"])
@pytest.mark.parametrize("deadly", [(), ("t/long.yaml::doc[7]",), ("t/long.yaml::doc[3]", "t/long.yaml::doc[4]")])
def test_every_item_is_reported_once_and_deadly_docs_are_given_up(deadly: Sequence[str], size: int | None) -> None:
    for seed in range(40):
        loop = Loop(seed, deadly, 0.0, size, None).run()
        assert set(loop.given_up) == set(deadly)
        assert loop.reported == Counter(set(ITEMS) - set(deadly))
        assert loop.deaths == len(deadly) * (2 if size else 3)


@pytest.mark.parametrize("size", [SIZE, None], ids=["cut", "whole"])
def test_random_deaths_lose_nothing(size: int | None) -> None:
    """A doc that dies alone by bad luck, and a test of the user that dies once, are given up: all others are run."""
    deaths = 0
    for seed in range(80):
        loop = Loop(seed, (), 0.04, size, None).run()
        deaths += loop.deaths
        assert loop.reported == Counter(set(ITEMS) - set(loop.blocks.lost)), seed
    assert deaths > 100


def test_without_restarts_the_items_left_are_named() -> None:
    for seed in range(40):
        loop = Loop(seed, ("t/long.yaml::doc[7]",), 0.0, SIZE, 0).run()
        left = dict(loop.blocks.unfinished())
        assert list(left) == ["t/long.yaml::doc[4]"]
        assert left["t/long.yaml::doc[4]"].endswith("and no worker was left to run it again")
        assert loop.reported.keys() & {f"t/long.yaml::doc[{i}]" for i in range(4, 8)} == set()


def test_a_gate_is_given_up_after_two_deaths() -> None:
    for seed in range(40):
        loop = Loop(seed, ("t/short.yaml::gate[acc]",), 0.0, SIZE, None).run()
        assert loop.given_up == []
        assert list(loop.blocks.lost) == ["t/short.yaml::gate[acc]"]
        assert loop.reported == Counter(set(ITEMS) - {"t/short.yaml::gate[acc]"})
