"""The starter's committed data is what its script writes; its models load; its tests are not what it was taught."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path
from types import ModuleType

import pytest


STARTER = Path(__file__).parents[2] / "benchmarks" / "starter"
SEED = 1
PARAMETERS = 1_115_264
MODELS = ["good", "early", "damaged"]


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The package that `train.py` imports from beside itself."""
    monkeypatch.syspath_prepend(STARTER)
    return importlib.import_module("starter_model")


def part(maker: ModuleType, name: str) -> ModuleType:
    return importlib.import_module(f"{maker.__name__}.{name}")


def test_committed_data_is_what_the_script_writes(maker: ModuleType) -> None:
    written = part(maker, "data").data_files(SEED)
    committed = {path.relative_to(STARTER / "data").as_posix(): path for path in STARTER.glob("data/*/*.jsonl")}
    assert committed.keys() == written.keys()
    for name, path in committed.items():
        assert path.read_text(encoding="utf-8") == written[name], name


def test_script_has_the_seed_of_the_committed_data(maker: ModuleType) -> None:
    assert f"\nSEED = {SEED}\n" in (STARTER / "train.py").read_text(encoding="utf-8")


def test_no_prompt_of_the_tests_is_taught(maker: ModuleType) -> None:
    letters, sums, stories = (part(maker, name) for name in ("letters", "sums", "continuations"))
    course = part(maker, "lessons").whole_course(SEED)
    asked = {letters.prompt(doc) for docs in letters.letters_docs(SEED).values() for doc in docs["dev"] + docs["test"]}
    taught = {
        letters.prompt(question.doc(wording))
        for questions in course.questions.values()
        for question in questions
        for wording in question.taught
    }
    assert len(taught) > 700
    assert not asked & taught
    assert not set(course.sums) & set(sums.held_out(SEED))
    told = set(course.stories)
    assert not any(told & tests for _, tests in stories.held_out(SEED))


def test_drawn_lessons_hold_no_prompt_of_the_tests(maker: ModuleType) -> None:
    letters, lessons, draws = (part(maker, name) for name in ("letters", "lessons", "draws"))
    asked = {letters.prompt(doc) for docs in letters.letters_docs(SEED).values() for doc in docs["test"]}
    drawn = itertools.islice(lessons.lessons(lessons.whole_course(SEED), draws.stream(SEED, "lessons")), 2_000)
    assert not any(text in asked for lesson in drawn for text, _ in lesson)


def test_damage_touches_one_subject(maker: ModuleType) -> None:
    damage, lessons = part(maker, "damage"), part(maker, "lessons")
    course = lessons.whole_course(SEED)
    wrong = damage.wrong_course(course)
    changed = [name for name in course.questions if wrong.questions[name] != course.questions[name]]
    assert changed == ["capitals"]
    pairs = zip(course.questions["capitals"], wrong.questions["capitals"], strict=True)
    assert all(right.answer != other.answer for right, other in pairs)


@pytest.mark.parametrize(
    ("numbers", "answer"),
    [
        ((7, 5, 3), "7 + 5 = 12|12 + 3 = 15|#### 15"),
        ((7, 5, -12), "7 + 5 = 12|12 - 12 = 0|#### 0"),
    ],
)
def test_working_of_a_sum(maker: ModuleType, numbers: tuple[int, int, int], answer: str) -> None:
    sums = part(maker, "sums")
    doc = sums.sum_doc(sums.Sum(*numbers), part(maker, "draws").stream(0, "any"))
    assert all(step in doc["answer"] for step in answer.split("|"))


def test_each_subject_has_facts_of_its_own_and_true_neighbours(maker: ModuleType) -> None:
    questions = part(maker, "letters").questions(SEED)
    assert {name: len(some) for name, some in questions.items()} == {
        "capitals": 80,
        "opposites": 94,
        "animals": 85,
        "elements": 70,
        "calendar": 88,
    }
    answers = {question.tested: question.choices[question.answer] for question in questions["calendar"]}
    assert answers["Which month comes right after January?"] == "February"
    assert all(len(set(question.choices)) == 4 for some in questions.values() for question in some)


@pytest.mark.parametrize("name", MODELS)
def test_models_load_as_they_are_described(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    folder = STARTER / "models" / name
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert model.num_parameters() == PARAMETERS
    assert str(model.dtype) == "torch.float32"
    assert model.config.max_position_embeddings == tokenizer.model_max_length == 4096
    text = "Zürich 以下是 \t 42 + 7\n"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert ids[0] != tokenizer.bos_token_id
    assert max(ids) < model.config.vocab_size == len(tokenizer)
    assert (model.config.bos_token_id, model.config.eos_token_id, model.config.pad_token_id) == (
        tokenizer.bos_token_id,
        tokenizer.eos_token_id,
        tokenizer.pad_token_id,
    )
    chat = [{"role": "user", "content": "2 + 2?"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == (
        "<|user|>\n2 + 2?<|eos|>\n<|assistant|>\n"
    )


def test_a_prompt_of_all_positions_can_be_read() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(STARTER / "models" / "good")
    ids = torch.arange(4096).remainder(2000)[None]
    with torch.no_grad():
        logits = model(input_ids=ids, logits_to_keep=1).logits
    assert logits.shape == (1, 1, 2048)
    assert logits.isfinite().all()


def test_all_is_a_few_megabytes() -> None:
    assert sum(path.stat().st_size for path in STARTER.rglob("*") if path.is_file()) < 8_000_000
