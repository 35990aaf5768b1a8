"""Measure the structure of a package: rooms, floors, sizes, names and sentences.

    python perf/house.py [PACKAGE_DIR] [--words] [--names]

A room is a top-level module or folder of the package. `--words` lists each sentence that is counted, `--names` each
helper, homonym and parameter, with file and line. Only the standard library is needed, so any checkout can be measured.

The rule for a headless first line of a docstring: it begins with a word of `HEADLESS`, words that begin a clause or
a phrase and neither a noun ("The share of ...") nor an imperative ("Return ..."). The line then does not stand alone.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import tokenize
from collections import Counter
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


HEADLESS = re.compile(
    r"(?i)(what|whether|how|why|which|where|when|who|whose|as|by|that|if|of|for|from|in|on|at|with|without|until|to|"
    r"because|it|its|they|these|those|this|so)\b"
)

#: Phrases that the package avoids, and the words to write instead.
DISCOURAGED: Mapping[str, str] = {
    r"(?<!there )\b(?:is|are) no (?!longer|more\b|less\b|matter\b)\w": "is not a",
    r"\bso many\b": "that number of",
    r"\btold\b": "reported, passed, shown",
    r"\b(?:be|is|are|was|were) had\b": "obtained, found",
    r"\brests? (?:up)?on\b": "depends on, uses",
    r"\bof (?:ours|theirs|its own accord)\b": "our own",
    r"\b(?:number|report|line|file|score|text|value|entry|row|sentence|result) an? "
    r"(?:doc|task|model|file|request|filter|metric|gate|token|text|run|row|word)\b": "per",
    r"\b(?:leave|leaves|left|leaving) (?:\S+ ){1,3}away\b": "omit",
    r"\b(?:hitherto|thereof|wherein|whence|thence|whither|thither|ere|nought|naught|lest|hence)\b": "a plain word",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A place that is counted: file, line, and its text."""

    file: Path
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Module:
    """One parsed module; `path` is relative to the package."""

    path: Path
    source: str
    tree: ast.Module

    @property
    def room(self) -> str:
        return self.path.parts[0].removesuffix(".py")

    @property
    def lines(self) -> int:
        return len(self.source.splitlines())

    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    def docstrings(self) -> Iterator[Place]:
        """The first line of each docstring."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield Place(self.path, node.body[0].lineno, text.splitlines()[0])

    def words(self) -> Iterator[Place]:
        """Every comment and every line of a text, docstrings and messages included.

        A sentence that an implicit concatenation breaks is one text for the parser, so it is found whole.
        """
        for token in tokenize.generate_tokens(io.StringIO(self.source).readline):
            if token.type == tokenize.COMMENT:
                yield Place(self.path, token.start[0], token.string)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for offset, line in enumerate(node.value.splitlines()):
                    yield Place(self.path, node.lineno + offset, line.strip())


def read_package(package: Path) -> list[Module]:
    """Return the modules of a package, in the order of their paths."""
    modules = []
    for path in sorted(package.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        modules.append(Module(path.relative_to(package), source, ast.parse(source)))
    return modules


def headless(modules: list[Module]) -> list[Place]:
    """Return the docstrings whose first line begins with a word of `HEADLESS`."""
    return [place for module in modules for place in module.docstrings() if HEADLESS.match(place.text)]


def discouraged(modules: list[Module]) -> list[Place]:
    """Return the comments and texts with a phrase of `DISCOURAGED`, each with the word to write instead."""
    return [
        Place(place.file, place.line, f"{found[0]!r} ({instead}): {place.text}")
        for module in modules
        for place in module.words()
        for phrase, instead in DISCOURAGED.items()
        if (found := re.search(phrase, place.text))
    ]


def homonyms(modules: list[Module]) -> dict[str, list[Path]]:
    """Return the public names of classes and type aliases that several modules define, with these modules."""
    homes: dict[str, list[Path]] = {}
    for module in modules:
        for name in {name for node in module.tree.body for name in _defined(node) if not name.startswith("_")}:
            homes.setdefault(name, []).append(module.path)
    return {name: paths for name, paths in sorted(homes.items()) if len(paths) > 1}


def _defined(node: ast.stmt) -> Iterator[str]:
    """The class or type alias that a statement defines; names in capitals alone are constants."""
    if isinstance(node, ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        variable = isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") in ("TypeVar", "ParamSpec")
        yield from (
            target.id
            for target in targets
            if isinstance(target, ast.Name) and re.match(r"[A-Z]\w*[a-z]", target.id) and not variable
        )


def small_helpers(modules: list[Module], most: int = 4) -> list[Place]:
    """Return the private functions of at most `most` lines that their module names only once."""
    found = []
    for module in modules:
        uses = Counter(
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Name | ast.Attribute)
        )
        found += [
            Place(module.path, function.lineno, function.name)
            for function in module.functions()
            if function.name.startswith("_") and not function.name.endswith("__")
            if _length(function) <= most and uses[function.name] == 1
        ]
    return found


def parameters(modules: list[Module], name: str) -> list[Place]:
    """Return the functions with a parameter of this name."""
    return [
        Place(module.path, function.lineno, function.name)
        for module in modules
        for function in module.functions()
        if name in {one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    ]


def imports_by_room(modules: list[Module], package: str) -> dict[str, set[str]]:
    """Return the rooms that each room imports, anywhere in its modules."""
    found: dict[str, set[str]] = {module.room: set() for module in modules}
    for module in modules:
        for node in ast.walk(module.tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            rooms = {name.split(".")[1] for name in names if name.startswith(f"{package}.")}
            found[module.room] |= rooms & set(found) - {module.room}
    return found


def longest_chain(imports: Mapping[str, set[str]]) -> list[str]:
    """Return the longest chain of rooms of which each imports the next. Raises ValueError for a circle."""
    chains: dict[str, list[str]] = {}

    def chain(room: str, above: tuple[str, ...]) -> list[str]:
        if room in above:
            raise ValueError(f"rooms import each other: {' -> '.join((*above, room))}")
        if room not in chains:
            below = [chain(other, (*above, room)) for other in sorted(imports[room])]
            chains[room] = [room, *max(below, key=len, default=[])]
        return chains[room]

    return max((chain(room, ()) for room in sorted(imports)), key=len)


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", nargs="?", type=Path, default=Path(__file__).parents[1] / "pytest_llmeval")
    parser.add_argument("--words", action="store_true", help="list headless first lines and discouraged phrases")
    parser.add_argument("--names", action="store_true", help="list small helpers, homonyms and `variant` parameters")
    given = parser.parse_args()
    package = given.package.resolve()
    modules = read_package(package)
    docstrings = [place for module in modules for place in module.docstrings()]
    titles, phrases = headless(modules), discouraged(modules)
    helpers, twice, variants = small_helpers(modules), homonyms(modules), parameters(modules, "variant")
    sizes = Counter[str]()
    for module in modules:
        sizes[module.room] += module.lines
    lengths = sorted(
        (_length(function), module.path, function.name) for module in modules for function in module.functions()
    )
    numbers = [length for length, _, _ in lengths]
    imports = {room: others for room, others in imports_by_room(modules, package.name).items() if room != "__init__"}
    try:
        chain = longest_chain(imports)
        floors = f"{len(chain)}: {' -> '.join(chain)}"
    except ValueError as error:
        floors = str(error)
    longest, file, name = lengths[-1]
    print(f"rooms                        {len(sizes) - ('__init__' in sizes)}")
    print(f"floors                       {floors}")
    print(f"modules                      {len(modules)}")
    print(f"lines                        {sizes.total():,}")
    print(f"functions                    {len(numbers):,}")
    print(
        f"lines of a function          median {statistics.median(numbers):g}, p95 {numbers[len(numbers) * 95 // 100]}, "
    )
    print(f"                             longest {longest} ({file}: {name})")
    print(f"private, used once, <= 4     {len(helpers)}")
    print(f"headless docstrings          {len(titles)} of {len(docstrings):,} ({len(titles) / len(docstrings):.1%})")
    print(f"discouraged phrases          {len(phrases)}")
    print(f"homonyms                     {len(twice)}{': ' * bool(twice)}{', '.join(twice)}")
    print(f"functions taking `variant`   {len(variants)}")
    print("lines per room")
    for room, lines in sorted(sizes.items(), key=lambda pair: -pair[1]):
        print(f"  {lines:6,}  {room}")
    for flag, places in ((given.words, [*titles, *phrases]), (given.names, [*helpers, *variants])):
        if flag:
            print(*(f"{package.name}/{place.file}:{place.line}: {place.text}" for place in places), sep="\n")
    if given.names:
        print(*(f"{name}: {', '.join(map(str, paths))}" for name, paths in twice.items()), sep="\n")


if __name__ == "__main__":
    main()
