"""The division of work among the workers of pytest-xdist, which survives the death of any of them.

Docs go out in blocks, because neighbours share the beginning of their prompts. A dead worker leaves a block that it
had begun. Only a worker that starts later, and knows of it (`Lessons`), gets that block. It asks for each of its docs
alone: a doc that kills this worker too is given up with an error, and all others get their answers.

Where docs stop early, the docs that are needed depend on those before. Such a block begins again from its first item.
Items that have been reported run silently, and docs are asked alone only after a second death.
"""

from __future__ import annotations

from collections import Counter
from collections import deque
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import Any
from typing import TypeAlias

from pytest_llmeval._task import NOTHING


#: The key of `Lessons` in `config.workerinput`.
LESSONS = "llmeval_lessons"
#: Workers that a gate may kill before it is given up. A doc is given up when it kills a worker that asks it alone.
MOST_DEATHS = 2
#: Blocks per worker: the last ones to finish end at most about an eighth of a worker's time apart.
BLOCKS_PER_WORKER = 8
#: Docs in a block, at least: each block reads the examples in front of its docs again.
SMALLEST_BLOCK = 64
#: Items that a worker is left with before it gets another block: it runs one only when it knows the next.
FEW_LEFT = 2

#: A `WorkerController` of xdist.
Node: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class DocBlock:
    """Items, as places in the collection, that one worker runs in order.

    `repeats`: after the death of a worker, all items run again. `died`: the workers that died in it. `since`: only
    workers started after that many deaths in the session get it. `alone`, `silent`: node ids for `Lessons`.
    """

    items: tuple[int, ...]
    repeats: bool = False
    died: tuple[str, ...] = ()
    since: int = 0
    alone: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lessons:
    """The facts that a worker is given about those that died before it started.

    `deaths`: how many. `alone`: the node ids of docs that are asked alone. `silent`: items that run without a report.
    `lost`: node id of each doc that is given up -> the reason.
    """

    deaths: int = 0
    alone: Sequence[str] = ()
    silent: Sequence[str] = ()
    lost: Mapping[str, str] = NOTHING

    def to_list(self) -> list[Any]:
        return [self.deaths, list(self.alone), list(self.silent), dict(self.lost)]

    @classmethod
    def of(cls, workerinput: Mapping[str, Any]) -> Lessons:
        """Return the lessons in the input of a worker; none in that of the first workers."""
        return cls(*workerinput.get(LESSONS, ()))


def block_size(docs: int, workers: int, largest: int | None) -> int | None:
    """Return how many docs of a task make a block: the same number in all processes. None: tasks are not cut.

    >>> block_size(14_042, 4, 1000), block_size(1_172, 2, 1000), block_size(100_000, 2, 1000), block_size(300, 4, 1000)
    (439, 74, 1000, 64)
    """
    if largest is None:
        return None
    share = -(-docs // (max(workers, 1) * BLOCKS_PER_WORKER))
    return min(largest, max(SMALLEST_BLOCK, share))


def is_task_item(nodeid: str) -> bool:
    """Return True for an item of a task or group file."""
    return nodeid.partition("::")[0].endswith((".yaml", ".yml"))


def is_doc(nodeid: str) -> bool:
    """Return True for a doc of a task file."""
    return is_task_item(nodeid) and nodeid.partition("::")[2].startswith("doc[")


def blocks_of(
    nodeids: Sequence[str], size: int | None, models: Sequence[str] = (), *, dist: str = "load", reorder: bool = True
) -> list[DocBlock]:
    """Return the items in blocks, model by model, the largest blocks first.

    A task file under one model is cut every `size` docs (None: not at all). Its gates go with its first docs, because
    they need the model too. Other tests are kept together as `--dist` says.
    """
    found: dict[tuple[object, ...], list[int]] = {}
    docs: Counter[tuple[str, str]] = Counter()
    for place, nodeid in enumerate(nodeids):
        path, _, name = nodeid.partition("::")
        key: tuple[object, ...]
        if not is_task_item(nodeid):
            key = (len(models), _scope(nodeid, dist))
        else:
            inside = name.partition("[")[2]
            model = max((one for one in models if inside.startswith((f"{one}-", f"{one}]"))), key=len, default="")
            order = models.index(model) if model else 0
            if size is None or not is_doc(nodeid):
                key = (order, path, model, 0)
            else:
                before = inside.rpartition("-")[0]
                key = (order, path, before, docs[path, before] // size)
                docs[path, before] += 1
        found.setdefault(key, []).append(place)
    units = list(found.items())
    if reorder:
        units.sort(key=lambda unit: (unit[0][0], -len(unit[1])))
    return [DocBlock(tuple(places), repeats=size is None and len(key) > 2) for key, places in units]


def _scope(nodeid: str, dist: str) -> str:
    """Return the name that tests of other files share if they are kept together."""
    if dist == "loadscope":
        return nodeid.rpartition("::")[0]
    if dist == "loadfile":
        return nodeid.partition("::")[0]
    # xdist adds the name of a test's group to its id.
    if dist == "loadgroup" and nodeid.rfind("@") > nodeid.rfind("]"):
        return nodeid.rpartition("@")[2]
    return nodeid


class BlockScheduling:
    """Hands out blocks to the workers of a session with task files; the methods are those of xdist's `Scheduling`.

    Parameters
    ----------
    collections
        The node ids that each worker collected. They are equal, unless `each` worker runs its own.
    divide
        Returns the blocks of a collection.
    """

    collection_is_completed = True

    def __init__(
        self,
        collections: Mapping[Node, Sequence[str]],
        divide: Callable[[Sequence[str]], Iterable[DocBlock]],
        *,
        each: bool,
    ) -> None:
        #: Node id of each item that is not run again -> the reason.
        self.lost: dict[str, str] = {}
        self._each = each
        self._names = dict(collections)
        self._common: deque[DocBlock] = deque() if each else deque(divide(next(iter(collections.values()))))
        self._queues = {node: deque(divide(names)) if each else self._common for node, names in collections.items()}
        #: The collections and queues of dead workers, which their replacements take over.
        self._left: deque[tuple[Sequence[str], deque[DocBlock]]] = deque()
        self._collected = [(names, self._queues[node]) for node, names in collections.items()]
        #: Place of each item that a worker has not finished -> its block, in the order in which they run.
        self._given: dict[Node, dict[int, DocBlock]] = {node: {} for node in collections}
        self._deaths = 0
        #: Node id -> the workers that died in that item.
        self._killed: dict[str, list[str]] = {}
        #: The item that a worker has reported last.
        self._reported: dict[Node, str] = {}
        #: Blocks that no worker is left for, with their collection.
        self._dropped: list[tuple[Sequence[str], DocBlock]] = []

    @property
    def nodes(self) -> list[Node]:
        return list(self._given)

    @property
    def tests_finished(self) -> bool:
        return not any(queue for _, queue in self._collected) and all(len(items) < 2 for items in self._given.values())

    @property
    def has_pending(self) -> bool:
        return any(queue for _, queue in self._collected) or any(self._given.values())

    def lessons(self) -> Lessons:
        """Return what a worker that starts now has to know."""
        waiting = [block for _, queue in self._collected for block in queue]
        return Lessons(
            self._deaths,
            [name for block in waiting for name in block.alone],
            [name for block in waiting for name in block.silent],
            dict(self.lost),
        )

    def gates(self) -> Iterator[str]:
        """Yield the node ids of all gates, and of the scores of groups."""
        for name in dict.fromkeys(name for names, _ in self._collected for name in names):
            if is_task_item(name) and name.partition("::")[2].startswith(("gate[", "score")):
                yield name

    def unfinished(self) -> Iterator[tuple[str, str]]:
        """Yield the items in which workers died and that no worker was left to run again, with the reason."""
        waiting = [(names, block) for names, queue in self._collected for block in queue]
        for names, block in dict.fromkeys((tuple(names), block) for names, block in (*waiting, *self._dropped)):
            for name in (names[place] for place in block.items):
                if name in self._killed and name not in self.lost:
                    yield name, f"{_killed_by(self._killed[name])}, and no worker was left to run it again"

    def note_report(self, node: Node, nodeid: str) -> None:
        """Take note that an item needs nothing more: its worker may die before it says so."""
        self._reported[node] = nodeid

    def add_node(self, node: Node) -> None:
        self._given[node] = {}

    def add_node_collection(self, node: Node, collection: Sequence[str]) -> None:
        """Let a worker that came later take part, unless it collected other items."""
        names, queue = self._collected[0]
        if self._each:
            names, queue = self._left.popleft() if self._left else (list(collection), deque())
        if list(collection) == list(names):
            self._names[node], self._queues[node] = names, queue
            return
        self._drop(names, queue, only_left=any(not other.shutting_down for other in self._names))
        node.shutdown()

    def schedule(self) -> None:
        """Give work to every worker that has little."""
        for node in self.nodes:
            self._feed(node)

    def mark_test_complete(self, node: Node, item_index: int, duration: float = 0) -> None:
        self._given[node].pop(item_index, None)
        self._feed(node)

    def mark_test_pending(self, item: str) -> None:
        """Run an item again on any worker, for plugins that ask so in `pytest_handlecrashitem`."""
        names, queue = self._collected[0]
        queue.append(DocBlock((list(names).index(item),)))
        self.schedule()

    def remove_pending_tests_from_node(self, node: Node, indices: Sequence[int]) -> None:
        """Do nothing: no item is ever taken back from a worker."""

    def remove_node(self, node: Node) -> str | None:
        """Take back the work of a worker that ended; return the item that is given up because it died, if one is.

        Raises KeyError for a worker that never took part, as xdist expects.
        """
        given = self._given.pop(node)
        names, queue = self._names.pop(node, ()), self._queues.pop(node, self._common)
        ended, item = hasattr(node, "workeroutput"), None
        if given and names[place := next(iter(given))] == self._reported.get(node):
            del given[place]
        if given:
            block = given[next(iter(given))]
            queue.extendleft(reversed([one for one in dict.fromkeys(given.values()) if one is not block]))
            if not ended:
                item = self._take_back(node, names, queue, given)
            else:
                # By pytest.exit: no item is to blame.
                queue.appendleft(replace(block, items=tuple(one for one in block.items if one in given)))
                if not self._given:
                    self._drop(names, queue, only_left=False)
        if names and not ended:
            self._left.append((names, queue))
        self.schedule()
        return item

    def _take_back(
        self, node: Node, names: Sequence[str], queue: deque[DocBlock], given: Mapping[int, DocBlock]
    ) -> str | None:
        """Put the block in which a worker died back in front; return the item to report as given up, if any."""
        place, block = next(iter(given.items()))
        item, died = names[place], (*block.died, node.gateway.id)
        self._deaths += 1
        killed = self._killed.setdefault(item, [])
        killed.append(node.gateway.id)
        if not is_task_item(item):
            gives_up = True
        elif is_doc(item):
            gives_up = item in Lessons.of(node.workerinput).alone
        else:
            gives_up = len(killed) >= MOST_DEATHS
        if gives_up:
            self.lost[item] = _killed_by(died if is_doc(item) else killed)
            died = ()
        items = block.items if block.repeats else tuple(one for one in given if given[one] is block)
        items = tuple(one for one in items if one != place or not gives_up)
        silent = tuple(name for name in map(names.__getitem__, items) if name in block.silent)
        silent += tuple(names[one] for one in items if one not in given and names[one] not in block.silent)
        waiting = tuple(names[one] for one in items if is_doc(names[one]) and names[one] not in silent)
        if len(silent) < len(items):
            again = replace(
                block,
                items=items,
                died=died,
                since=self._deaths,
                alone=waiting if len(died) > (1 if block.repeats else 0) else (),
                silent=silent,
            )
            queue.appendleft(again)
        # The controller reports gates itself.
        return item if gives_up and (is_doc(item) or not is_task_item(item)) else None

    def _feed(self, node: Node) -> None:
        """Send blocks to a worker until it has enough; end it where there is none, so that it runs its last item."""
        if node not in self._names or node.shutting_down:
            return
        known, given, queue = Lessons.of(node.workerinput).deaths, self._given[node], self._queues[node]
        while len(given) <= FEW_LEFT:
            block = next((one for one in queue if one.since <= known), None)
            if block is None:
                node.shutdown()
                return
            queue.remove(block)
            given.update(dict.fromkeys(block.items, block))
            node.send_runtest_some(list(block.items))

    def _drop(self, names: Sequence[str], queue: deque[DocBlock], *, only_left: bool) -> None:
        """Give up the blocks that no worker can run: all, or those that wait for a worker that starts later."""
        dropped = [block for block in queue if block.since or not only_left]
        self._dropped += [(names, block) for block in dropped]
        for block in dropped:
            queue.remove(block)


def _killed_by(workers: Sequence[str]) -> str:
    times = "its worker process died" if len(workers) == 1 else f"{len(workers)} worker processes died"
    return f"{times} while it was evaluated ({', '.join(workers)})"


class Scheduling:
    """The scheduler that xdist would use, until it is known that task files are among the items.

    Parameters
    ----------
    theirs
        The scheduler of `--dist`, or of another plugin.
    ours
        Makes the scheduler that takes its place from the collections of the workers.
    each
        True if workers may collect different items.
    """

    def __init__(
        self, theirs: Any, ours: Callable[[Mapping[Node, Sequence[str]]], BlockScheduling], *, each: bool
    ) -> None:
        self.active = theirs
        self._ours = ours
        self._each = each
        self._chosen = False
        self._collections: dict[Node, list[str]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.active, name)

    def add_node_collection(self, node: Node, collection: Sequence[str]) -> None:
        self._collections[node] = list(collection)
        self.active.add_node_collection(node, collection)

    def schedule(self) -> None:
        """Choose the scheduler at the first call, and hand out work."""
        if not self._chosen:
            self._chosen = True
            nodes = self.active.nodes
            collections = {node: names for node, names in self._collections.items() if node in nodes}
            first = next(iter(collections.values()), [])
            # Different collections are reported by xdist's own scheduler.
            same = self._each or all(names == first for names in collections.values())
            if same and any(is_task_item(name) for names in collections.values() for name in names):
                self.active = self._ours(collections)
                for node in nodes:
                    if node not in collections:
                        self.active.add_node(node)
        self.active.schedule()
