"""The examination of a server before the first doc: which calls it knows, and whether its numbers are true.

The log-probability of a token is asked for in two independent ways: as a generated token's, among the likeliest ones
after a text, and as that of the last token of a prompt. A server that shifts its rows, omits values, clips them, reads
other tokens than it was sent, or ignores the context does not give the same number in both ways. A shift of rows that
explains every value is corrected; any other difference closes the door.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace

from pytest_llmeval._engine import TokenIds
from pytest_llmeval._errors import ModelError
from pytest_llmeval._servers.client import Client
from pytest_llmeval._servers.client import UnfitError
from pytest_llmeval._servers.client import closes
from pytest_llmeval._servers.doors import ID_DOORS
from pytest_llmeval._servers.doors import ID_PREFIX
from pytest_llmeval._servers.doors import TEXT_DOORS
from pytest_llmeval._servers.doors import Door
from pytest_llmeval._servers.doors import Passage
from pytest_llmeval._servers.doors import Reading
from pytest_llmeval._servers.doors import Wire
from pytest_llmeval._servers.doors import ask_labels
from pytest_llmeval._servers.doors import ask_tokens
from pytest_llmeval._servers.doors import next_tokens
from pytest_llmeval._servers.intake import CONTEXTS
from pytest_llmeval._servers.intake import Codec
from pytest_llmeval._servers.intake import Context
from pytest_llmeval._servers.intake import compare_tokenizers
from pytest_llmeval._servers.intake import contexts_of
from pytest_llmeval._servers.intake import find_intake


#: Texts that few models expect after the first context, for servers whose tokenizer is unknown.
UNLIKELY = (" quartz", " zebra", " fjord")
#: The number of likeliest tokens that is asked for; OpenAI allows five.
N_TOP = 5
#: The largest difference of two values of one token beyond the tolerance, as a share of the value: prompts and new
#: tokens are computed by different kernels, and small probabilities differ more.
RELATIVE = 0.02
#: Log-probabilities below this stand for values that the server did not compute.
FLOOR = -9000.0
#: The number of tokens of a prompt of which a prefix cache holds a part when it is asked for again.
LONG = 200
#: The distances from a token to the row with its value that are looked for.
SHIFTS = (0, -1, 1)
#: Two values that differ by less are one value.
EQUAL = 1e-6


@dataclass(frozen=True, slots=True)
class Findings:
    """The facts that the probe found: the best door, its name and the shift of its rows.

    `door` is None if the server gives no log-probabilities that can be used. `labels`: `ask_labels` can be used.
    `completes`: the server knows /v1/completions. `refused`: the reasons against other doors, by name. `notes`:
    corrections, untrue values, and checks that were not possible.
    """

    wire: Wire
    completes: bool = True
    name: str = ""
    door: Door | None = None
    shift: int = 0
    labels: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A token after a context: its name, its log-probability as a generated token, and that of the likeliest token.

    `lead`: the distance of the likeliest token from the second. `name`: its id, else its text.
    """

    context: Context
    name: str
    passage: Passage
    expected: float
    best: float
    lead: float


async def probe(
    client: Client, model: str, owner: str, codec: Codec | None, *, tolerance: float, only: str | None = None
) -> Findings:
    """Return the best door of a server. `only` names the one door to use; `tolerance` is that of `near`.

    Raises ModelError if the server reads other tokens than it was sent (a second BOS, a chat template, another
    tokenizer), or if the tokens that it generates do not depend on the context; GoneError if it does not answer.
    """
    wire = Wire(client, model, owner, takes_ids=codec is not None, decode=None if codec is None else codec.decode)
    contexts = contexts_of(codec)
    intake = await find_intake(wire, contexts)
    if intake is None:
        return Findings(wire, completes=False, refused={"completions": "the server refuses prompts there"})
    unseen = None if codec is None else await compare_tokenizers(intake, codec)
    findings = Findings(intake, notes=(unseen,) if unseen else ())
    try:
        tops = [
            (await next_tokens(intake, context.passage(intake), N_TOP, trial=True)).rows[0].top for context in contexts
        ]
        _check_generated(client, tops)
    except ModelError as error:
        if not closes(error):
            raise
        return replace(findings, refused={"log-probabilities": str(error)})
    names = _Names(intake, codec)
    cases = [case for context, top in zip(contexts, tops, strict=True) for case in names.cases(context, top)]
    if len(cases) < len(contexts):
        shown = ", ".join(map(repr, tops[0]))
        return replace(findings, refused={"log-probabilities": f"the names {shown} are not each of one token"})
    moved = [passage for context in contexts if (passage := names.after(context, cases[0].name)) is not None]
    for name, door in (ID_DOORS if intake.takes_ids else TEXT_DOORS).items():
        if only not in (None, name) or (name == "forced" and codec is None):
            continue
        if name == "tokens":
            wire = replace(intake, reads_cache=await _reads_cache(intake, contexts[-1].ids))
            findings = replace(findings, wire=wire)
        try:
            shift = await _examine(findings.wire, door, cases, moved, names.unlikely(contexts[0], tops[0]), tolerance)
        except ModelError as error:
            if not closes(error):
                raise
            findings = _refuse(findings, name, error)
            continue
        note = f"{name}: each value is found {_place(shift)} of its token: corrected"
        notes = (*findings.notes, note) if shift else findings.notes
        findings = replace(findings, name=name, door=door, shift=shift, notes=notes)
        break
    if intake.shows_ids and intake.takes_ids and only is None:
        try:
            await _examine_labels(findings.wire, cases, tolerance)
            findings = replace(findings, labels=True)
        except ModelError as error:
            if not closes(error):
                raise
            findings = _refuse(findings, "labels", error)
    return findings


def near(value: float, expected: float, tolerance: float) -> bool:
    """Return True if two log-probabilities of one token agree up to rounding of the server's number format."""
    return abs(value - expected) <= tolerance + RELATIVE * abs(expected)


def _refuse(findings: Findings, name: str, error: ModelError) -> Findings:
    reason = str(error).replace(findings.wire.client.root, "")
    notes = (f"{name} is not used: {reason}",) if isinstance(error, _UntrueError) else ()
    return replace(findings, refused={**findings.refused, name: reason}, notes=(*findings.notes, *notes))


class _UntrueError(UnfitError):
    """The values of a door cannot be true."""


class _Names:
    """The tokens of a server by the names that it gives them: ``token_id:N`` or their texts."""

    def __init__(self, wire: Wire, codec: Codec | None) -> None:
        self._wire = wire
        self._codec = codec
        self._ids: dict[str, int | None] = {}
        if codec is not None and not wire.shows_ids:
            for token in range(codec.size):
                text = codec.decode([token])
                # A text of two tokens names neither.
                self._ids[text] = None if text in self._ids else token

    def cases(self, context: Context, top: Mapping[str, float]) -> list[Case]:
        """Return the likeliest and the least likely of some tokens after a context that can be asked for by name."""
        ordered = sorted(top.items(), key=lambda pair: -pair[1])
        lead = ordered[0][1] - ordered[1][1] if len(ordered) > 1 else 0.0
        found = [
            Case(context, name, passage, value, ordered[0][1], lead)
            for name, value in ordered
            if value > FLOOR and (passage := self.after(context, name)) is not None
        ]
        return [found[0], found[-1]] if len(found) > 1 else found

    def after(self, context: Context, name: str) -> Passage | None:
        """Return the passage of a context and one more token; None if the name is not that of exactly one token."""
        if self._codec is None:
            return Passage(text=context.text + name, cut=len(context.text)) if name.strip() else None
        token = int(name.removeprefix(ID_PREFIX)) if name.startswith(ID_PREFIX) else self._ids.get(name)
        return None if token is None else self._passage(context, token)

    def unlikely(self, context: Context, top: Mapping[str, float]) -> list[Passage]:
        """Return passages of a context and a token that is not among the likeliest ones."""
        if self._codec is None:
            return [Passage(text=context.text + text, cut=len(context.text)) for text in UNLIKELY]
        found: list[Passage] = []
        step = max(1, self._codec.size // 50)
        for token in range(step, self._codec.size, step):
            if len(found) == len(UNLIKELY):
                break
            text = self._codec.decode([token])
            if text in top or f"{ID_PREFIX}{token}" in top or self._codec.encode_bare(text) != (token,):
                continue
            if (passage := self._passage(context, token)) is not None:
                found.append(passage)
        return found

    def _passage(self, context: Context, token: int) -> Passage | None:
        ids = (*context.ids, token)
        passage = self._wire.passage(ids, len(context.ids))
        if self._wire.takes_ids or self._codec is None:
            return passage
        # The server must find the same tokens in the text.
        return passage if self._codec.encode(context.text + self._codec.decode([token])) == ids else None


async def _examine(
    wire: Wire,
    door: Door,
    cases: Sequence[Case],
    moved: Sequence[Passage],
    unlikely: Sequence[Passage],
    tolerance: float,
) -> int:
    """Return the shift of a door's rows. Raises UnfitError or RefusedError, with what was seen, if it is of no use."""
    asked = [(case, await door(wire, case.passage, True)) for case in cases]
    # Without a tokenizer, a token may be split or joined with the text before it.
    single = [(case, reading) for case, reading in asked if len(reading.scored) == 1]
    if len(single) < (len(asked) if wire.decode else len(CONTEXTS)):
        case, reading = next(pair for pair in asked if len(pair[1].scored) != 1)
        raise _UntrueError(f"{len(reading.scored)} rows for the one token {case.name!r}")
    cases, readings = [case for case, _ in single], [reading for _, reading in single]
    expected = [case.expected for case in cases]
    shift = next((shift for shift in SHIFTS if _fits(readings, expected, shift, tolerance)), None)
    if shift is None:
        raise _UntrueError(_difference(cases, readings, tolerance))
    elsewhere = [(await door(wire, passage, True)).score(shift)[0] for passage in moved]
    if len(elsewhere) > 1 and max(elsewhere) - min(elsewhere) < EQUAL:
        raise _UntrueError(
            f"the value of {cases[0].name!r} does not depend on the context: {elsewhere[0]:.4f} each time"
        )
    for case, reading in zip(cases, readings, strict=True):
        is_first = case.expected == case.best
        if case.lead > tolerance and reading.score(shift)[1] is not is_first:
            raise _UntrueError(f"{case.name!r} is {'not ' * is_first}shown as the likeliest token")
    values = [(await door(wire, passage, True)).score(shift)[0] for passage in unlikely]
    # In bfloat16 two of them may be equal by chance.
    if any(value <= FLOOR for value in values) or (len(values) > 1 and max(values) - min(values) < EQUAL):
        raise _UntrueError(f"unlikely tokens have the values {', '.join(f'{value:.4f}' for value in values)}: clipped")
    return shift


def _fits(readings: Sequence[Reading], expected: Sequence[float], shift: int, tolerance: float) -> bool:
    try:
        values = [reading.score(shift)[0] for reading in readings]
    except UnfitError:
        return False
    return all(near(value, wanted, tolerance) for value, wanted in zip(values, expected, strict=True))


def _difference(cases: Sequence[Case], readings: Sequence[Reading], tolerance: float) -> str:
    """Return the sentence on values that no shift explains."""
    # Some servers show at each token the probabilities after it: the row before holds those of the token.
    before = [
        (case, reading.rows[reading.scored.start - 1].top if reading.scored.start else {})
        for case, reading in zip(cases, readings, strict=True)
        if case.expected == case.best
    ]
    if all(near(top.get(case.name, 1.0), case.expected, tolerance) for case, top in before):
        return "each token is shown with its probability after itself (rows shifted by one), its own is not shown"
    values = [row.logprob for reading in readings for i in reading.scored for row in [reading.rows[i]]]
    if not any(value is None or value for value in values):
        return "every value is 0"
    if any(value is None or value <= FLOOR for value in values):
        missing = next(case.name for case, value in zip(cases, values, strict=True) if value is None or value <= FLOOR)
        return f"no value for {missing!r}"
    if len({round(value, 6) for value in values if value is not None}) == 1:
        return f"every token has the value {values[0]:.4f}, whatever the context"
    case, value = next(
        (case, value)
        for case, value in zip(cases, values, strict=True)
        if value is not None and not near(value, case.expected, tolerance)
    )
    return (
        f"after {case.context.text!r} the log-probability of the token {case.name!r} is {case.expected:.4f} if it is "
        f"generated and {value:.4f} in a prompt"
    )


async def _examine_labels(wire: Wire, cases: Sequence[Case], tolerance: float) -> None:
    """Raise UnfitError if the values of labels are not those of generated tokens."""
    for case in cases:
        token = case.passage.ids[-1]
        value, is_best = (await ask_labels(wire, case.context.ids, [token], trial=True))[token]
        if not near(value, case.expected, tolerance):
            raise _UntrueError(
                f"the label {case.name!r} has the value {value:.4f}, as a generated token {case.expected:.4f}"
            )
        if case.lead > tolerance and is_best is not (case.expected == case.best):
            raise _UntrueError(f"the label {case.name!r} is wrongly shown as the likeliest token or not")


def _check_generated(client: Client, tops: Sequence[Mapping[str, float]]) -> None:
    """Raise ModelError if generated tokens do not depend on the context; UnfitError if they have no probabilities."""
    if any(len(top) < 2 for top in tops):
        raise UnfitError(f"{min(map(len, tops))} of the {N_TOP} likeliest tokens are shown after a prompt")
    if all(value == 0 for top in tops for value in top.values()):
        raise UnfitError("generated tokens all have the log-probability 0")
    first = tops[0]
    if all(top.keys() == first.keys() and max(abs(top[name] - first[name]) for name in top) < EQUAL for top in tops):
        raise ModelError(
            f"the server at {client.root} writes the same tokens with the same probabilities after every prompt: it "
            "ignores the context"
        )


async def _reads_cache(wire: Wire, ids: TokenIds) -> bool:
    """Return True if vLLM reports how many tokens it read from its prefix cache."""
    long = (ids * (LONG // len(ids) + 1))[:LONG]
    reading = wire.passage(long, len(long) - 1)
    try:
        for _ in range(2):
            answer = await ask_tokens(replace(wire, reads_cache=True), reading, True)
    except ModelError as error:
        if not closes(error):
            raise
        return False
    return bool(answer.n_cached)


def _place(shift: int) -> str:
    return "one row behind that" if shift > 0 else "one row before that"
