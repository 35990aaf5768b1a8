"""The files of MMLU, its variants and MMLU-Pro that differ from subject to subject in a name only.

    python benchmarks/subject_files.py

writes them all. The format wants a file per task, so there are hundreds; what they say follows from the tables here,
and everything else stands in the `_template.yaml` of each folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


#: The subjects of MMLU by category (Hendrycks et al. 2021, table 2), in the order of the report.
CATEGORIES = {
    "stem": [
        "abstract_algebra",
        "anatomy",
        "astronomy",
        "college_biology",
        "college_chemistry",
        "college_computer_science",
        "college_mathematics",
        "college_physics",
        "computer_security",
        "conceptual_physics",
        "electrical_engineering",
        "elementary_mathematics",
        "high_school_biology",
        "high_school_chemistry",
        "high_school_computer_science",
        "high_school_mathematics",
        "high_school_physics",
        "high_school_statistics",
        "machine_learning",
    ],
    "other": [
        "business_ethics",
        "clinical_knowledge",
        "college_medicine",
        "global_facts",
        "human_aging",
        "management",
        "marketing",
        "medical_genetics",
        "miscellaneous",
        "nutrition",
        "professional_accounting",
        "professional_medicine",
        "virology",
    ],
    "social_sciences": [
        "econometrics",
        "high_school_geography",
        "high_school_government_and_politics",
        "high_school_macroeconomics",
        "high_school_microeconomics",
        "high_school_psychology",
        "human_sexuality",
        "professional_psychology",
        "public_relations",
        "security_studies",
        "sociology",
        "us_foreign_policy",
    ],
    "humanities": [
        "formal_logic",
        "high_school_european_history",
        "high_school_us_history",
        "high_school_world_history",
        "international_law",
        "jurisprudence",
        "logical_fallacies",
        "moral_disputes",
        "moral_scenarios",
        "philosophy",
        "prehistory",
        "professional_law",
        "world_religions",
    ],
}

#: The subjects of MMLU-Pro (Wang et al. 2024).
PRO_SUBJECTS = [
    "biology",
    "business",
    "chemistry",
    "computer_science",
    "economics",
    "engineering",
    "health",
    "history",
    "law",
    "math",
    "other",
    "philosophy",
    "physics",
    "psychology",
]

HEADER = "# Written by ../subject_files.py. Source and licence: _template.yaml.\n"


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to ask MMLU. `suffix` ends the name of each of its tasks; `filter` is the one that its groups look at."""

    suffix: str
    alias: str
    version: str
    metric: str = "acc"
    filter: str | None = None
    tags: tuple[str, ...] = ()


#: By folder, which is also the name of the whole.
VARIANTS = {
    "mmlu": Variant(suffix="", alias="mmlu", version="2"),
    "mmlu_continuation": Variant(suffix="_continuation", alias="mmlu (continuation)", version="2"),
    "mmlu_generative": Variant(
        suffix="_generative", alias="mmlu (generative)", version="3", metric="exact_match", filter="get_response"
    ),
    "mmlu_zh": Variant(suffix="_zh", alias="mmlu (中文)", version="1", tags=("chinese",)),
}


def subject_files() -> dict[str, str]:
    """All files by their path below this folder."""
    files = dict(_pro_files())
    for folder, variant in VARIANTS.items():
        files.update(_variant_files(folder, variant))
    return files


def _variant_files(folder: str, variant: Variant) -> Iterator[tuple[str, str]]:
    for category, subjects in CATEGORIES.items():
        for subject in subjects:
            yield f"{folder}/{subject}.yaml", _subject(subject, (category, *variant.tags), variant.suffix)
        members = [f"mmlu_{subject}{variant.suffix}" for subject in subjects]
        name = f"mmlu_{category}{variant.suffix}"
        yield f"{folder}/{category}.yaml", _group(name, category.replace("_", " "), members, variant)
    categories = [f"mmlu_{category}{variant.suffix}" for category in CATEGORIES]
    yield f"{folder}/{folder}.yaml", _group(folder, variant.alias, categories, variant)


def _pro_files() -> Iterator[tuple[str, str]]:
    for subject in PRO_SUBJECTS:
        lines = [
            "include: _template.yaml",
            f"task: mmlu_pro_{subject}",
            f"task_alias: {subject}",
            f"process_docs: !function category.{subject}",
        ]
        yield f"mmlu_pro/{subject}.yaml", _file(lines)
    whole = Variant(suffix="", alias="mmlu_pro", version="2.0", metric="exact_match", filter="custom-extract")
    members = [f"mmlu_pro_{subject}" for subject in PRO_SUBJECTS]
    yield "mmlu_pro/mmlu_pro.yaml", _group("mmlu_pro", whole.alias, members, whole)


def _subject(subject: str, tags: tuple[str, ...], suffix: str) -> str:
    lines = [
        "include: _template.yaml",
        f"task: mmlu_{subject}{suffix}",
        f"task_alias: {subject}",
        f"tag: [{', '.join(tags)}]",
        f"dataset_name: {subject}",
    ]
    return _file(lines)


def _group(name: str, alias: str, members: list[str], variant: Variant) -> str:
    lines = [
        f"group: {name}",
        *([] if alias == name else [f"group_alias: {alias}"]),
        "task:",
        *(f"  - {member}" for member in members),
        "aggregate_metric_list:",
        f"  - metric: {variant.metric}",
        "    aggregation: mean",
        "    weight_by_size: true",
        *([] if variant.filter is None else [f"    filter_list: {variant.filter}"]),
        "metadata:",
        f"  version: {variant.version}",
    ]
    return _file(lines)


def _file(lines: list[str]) -> str:
    return HEADER + "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name, text in subject_files().items():
        (Path(__file__).parent / name).write_text(text, encoding="utf-8")
