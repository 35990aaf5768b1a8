"""Made-up docs with the columns of data sets that no mirror holds, and with what their prompts can stumble over.

Row i of a split is a function of the split and i, so that two readers see the same.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import datasets


SPLITS = ("train", "validation", "test")
ROWS = 60

WORDS = [
    *(
        "river",
        "glass",
        "it's",
        '"quoted"',
        "(well)",
        "end.",
        "1,000",
        "50%",
        "$5",
        "####",
        "=",
        "[mark]",
        "[open",
        "Uber",
    ),
    *("naïve", "cafe\u0301", "你好", "a\\b", "two  blanks", "tab\tbed", "new\nline", "{x}", "{{7*7}}", "{% raw %}"),
]

PRO_CATEGORIES = [
    "biology",
    "business",
    "chemistry",
    "computer science",
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

TOKENIZED = [
    " = Heading = \n \n The 1 @,@ 000 m high @-@ rise ( built in 1 @.@ 5 years ) is the town 's pride . \n",
    " = = Second = = \n He said : \" yes ! \" ; she [ Ann ] , of the boys ' choir , asked ' why ? ' \n",
    " = = = Third = = = \n N people at 20 \u00b0 C , { sets } and ( nested ( brackets ) ) , 5 / ' 3 / 2 \n\n",
    " = = = = Fourth = = = = \n caf\u00e9 \u4f60\u597d \" unclosed ( quote and the dogs 's \n \n \n",
]


def _text(rng: random.Random, low: int, high: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))


def _hellaswag(rng: random.Random, _: int) -> dict[str, Any]:
    marks = ["", " [title]", " [header] ", "[substeps] ", " [step]  "]
    endings = [rng.choice(marks) + _text(rng, 1, 8) + rng.choice(marks) + _text(rng, 0, 3) + " stop" for _ in range(4)]
    return {
        "activity_label": _text(rng, 1, 3),
        "ctx_a": rng.choice(marks) + _text(rng, 2, 9),
        "ctx_b": rng.choice(["", "she goes Home to NASA [step] now", "  the dog", _text(rng, 1, 4)]),
        "endings": endings,
        "label": str(rng.randrange(4)),
    }


def _mmlu_pro(rng: random.Random, i: int) -> dict[str, Any]:
    options = [_text(rng, 1, 5) + rng.choice(["", " ", "\n"]) for _ in range(rng.choice([3, 4, 10, 10, 12]))]
    answer = rng.randrange(min(10, len(options)))
    letter = "ABCDEFGHIJ"[answer]
    return {
        "question_id": i,
        "question": rng.choice(["", " "]) + _text(rng, 3, 20),
        "options": options,
        "answer": letter,
        "answer_index": answer,
        "cot_content": f"A: Let's think step by step. {_text(rng, 3, 20)} The answer is ({letter}).",
        "category": PRO_CATEGORIES[i % len(PRO_CATEGORIES)],
        "src": "made up",
    }


def _truthful_qa(rng: random.Random, _: int) -> dict[str, Any]:
    one, many = rng.randint(2, 6), rng.randint(2, 9)
    labels = [1, *(rng.randrange(2) for _ in range(many - 1))]
    return {
        "question": _text(rng, 3, 12) + "?",
        "mc1_targets": {"choices": [_text(rng, 1, 8) for _ in range(one)], "labels": [1] + [0] * (one - 1)},
        "mc2_targets": {"choices": [_text(rng, 1, 8) for _ in range(many)], "labels": labels},
    }


def _wikitext(rng: random.Random, _: int) -> dict[str, Any]:
    return {"page": "".join(rng.choice(TOKENIZED) for _ in range(rng.randint(1, 6)))}


#: (data set, config) -> a row of it. MMLU-Pro needs five docs of each of its 14 categories in every split.
MAKERS = {
    ("Rowan/hellaswag", "default"): (_hellaswag, ROWS),
    ("TIGER-Lab/MMLU-Pro", "default"): (_mmlu_pro, 8 * len(PRO_CATEGORIES)),
    ("truthfulqa/truthful_qa", "multiple_choice"): (_truthful_qa, ROWS),
    ("EleutherAI/wikitext_document_level", "wikitext-2-raw-v1"): (_wikitext, ROWS),
}


def write_mirror(root: Path) -> Path:
    """All of them as a folder in the hub's layout."""
    for (data_set, config), (row, rows) in MAKERS.items():
        folder = root / data_set / config
        folder.mkdir(parents=True)
        for split in SPLITS:
            made = [row(random.Random(f"{data_set} {split} {i}"), i) for i in range(rows)]
            datasets.Dataset.from_list(made).to_parquet(folder / f"{split}-00000-of-00001.parquet")
        files = [f"  - split: {split}\n    path: {config}/{split}-*" for split in SPLITS]
        readme = "\n".join(["---", "configs:", f"- config_name: {config}", "  data_files:", *files, "---", ""])
        (root / data_set / "README.md").write_text(readme, encoding="utf-8")
    return root
