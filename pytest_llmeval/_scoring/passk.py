"""pass@k: the probability that at least one of k generated programs passes the tests (Chen et al. 2021).

For each response the `CodeRunner` runs one program, a text of Python source, in a sandbox and reports if it ended
without an error. The program is

    prompt of the doc + response + newline + reference

where the prompt is `doc_to_text` alone (no description, no examples) and the reference `doc_to_target`, the code
that tests (``"{{test}}\\ncheck({{entry_point}})"``). Where a prompt is prose, the option `program` spells the
program instead, as a template over the doc's fields with `completion` and `target`:

    metric_list:
      - metric: pass_at_k
        k: [1, 10]
        program: "{{completion}}\\n{{target}}"

Every response that the filters leave is a sample: with `repeats: 10` the pipeline should end in `take_first_k`.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Any
from typing import Protocol
from typing import TypeAlias

from pytest_llmeval._task import DocData
from pytest_llmeval._template import render


class ProgramOutcome(Protocol):
    """The outcome of a program that ran in a sandbox."""

    @property
    def passed(self) -> bool: ...


#: Runs one program and returns its outcome, or True if it passed.
CodeRunner: TypeAlias = Callable[[str], "ProgramOutcome | bool"]


@dataclass(frozen=True, slots=True)
class PassAtK:
    """The metric with its options."""

    k: tuple[int, ...]
    program: str | None = None

    @classmethod
    def from_options(cls, *, k: int | Sequence[int] = 1, program: str | None = None) -> PassAtK:
        """Return the metric for the options of its entry. Raises ValueError for a k below 1."""
        ks = (k,) if isinstance(k, int) else tuple(k)
        if min(ks) < 1:
            raise ValueError(f"metric pass@k: k must be at least 1, got {k!r}")
        return cls(ks, program)

    def score(
        self, completions: Any, prompt: str, references: Sequence[str], doc: DocData, runner: CodeRunner | None
    ) -> dict[str, float]:
        """Return the items ``pass@1``, ... of one doc.

        Raises ValueError without a runner, or with fewer than k samples.
        """
        samples = completions if isinstance(completions, list) else [completions]
        if runner is None:
            raise ValueError("metric pass@k runs code that the model wrote: set unsafe_code: true in the task file")
        if len(samples) < max(self.k):
            raise ValueError(
                f"pass@{max(self.k)} is not defined for {len(samples)} samples: raise repeats, and end the filter "
                "with take_first_k"
            )
        programs = [self.program_of(str(sample), prompt, references, doc) for sample in samples]
        outcomes = [runner(program) for program in programs]
        passed = sum(outcome if isinstance(outcome, bool) else outcome.passed for outcome in outcomes)
        return {f"pass@{k}": pass_at_k(len(samples), passed, k) for k in self.k}

    def program_of(self, completion: str, prompt: str, references: Sequence[str], doc: DocData) -> str:
        """Return the program of one sample. Several references are tests that must all pass."""
        tests = "\n".join(references)
        if self.program is None:
            return f"{prompt}{completion}\n{tests}"
        fields: Mapping[str, Any] = {**doc, "completion": completion, "target": tests}
        return render(self.program, fields, place="metric pass@k, program")


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the unbiased estimate from n samples of which c pass, 1 - C(n-c, k) / C(n, k).

    Raises ValueError for n < k.
    """
    if not 0 <= c <= n:
        raise ValueError(f"{c} of {n} samples cannot pass")
    if n < k:
        raise ValueError(f"pass@{k} is not defined for {n} samples")
    return 1 - comb(n - c, k) / comb(n, k)
