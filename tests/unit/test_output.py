"""Result and sample files: the peer's own, key for key and hash for hash, and what its readers make of ours."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_llmeval._errors import SettingError
from pytest_llmeval._plain import hash_of
from pytest_llmeval._plain import json_text
from pytest_llmeval._report import GateLine
from pytest_llmeval._report import GroupReport
from pytest_llmeval._report import ModelReport
from pytest_llmeval._report import RunFacts
from pytest_llmeval._report import TaskReport
from pytest_llmeval._report import prepare_output
from pytest_llmeval._report import result_dict
from pytest_llmeval._report import sample_rows
from pytest_llmeval._report import write_output
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import TaskData
from pytest_llmeval._verdicts import Verdict


STAMP = datetime(2026, 1, 2, 3, 4, 5, 678900)


def a_task(name: str = "t", **more: Any) -> Task:
    return Task(name, Path(f"{name}.yaml"), "multiple_choice", None, None, **more)


def a_sample(question: str = "q", **more: Any) -> dict[str, Any]:
    return {
        "doc": {"q": question, "n": 1},
        "target": 0,
        "arguments": [[question, " a"], [question, " b"]],
        "resps": [[[-1.5, True]], [[-2.0, False]]],
        "filtered_resps": {"none": [[-1.5, True], [-2.0, False]]},
        **more,
    }


def a_result(doc: int = 0, acc: Any = 1.0, **more: Any) -> DocResult:
    return DocResult(doc, {"none": {"acc": acc}}, **{"sample": a_sample(f"q{doc}"), **more})


def a_summary(name: str = "t", acc: float = 0.5, stderr: float | None = 0.25, **more: Any) -> Summary:
    values = more.pop("values", (MetricValue("acc", "none", acc, stderr, True, 4),))
    shape = {"version": 1.0, "num_fewshot": 0, "n": 4, "n_total": 9, **more}
    return Summary(name, name, values=values, **shape)


def task_report(task: Task, summary: Summary, results: Sequence[DocResult] = ()) -> TaskReport:
    return TaskReport(TaskData(task, results, summary.n_total), summary)


def group_report(summary: Summary, members: Sequence[str]) -> GroupReport:
    return GroupReport(Group(summary.name, Path("g.yaml"), tuple(members)), summary, members)


def a_report(*results: DocResult, model: str = "org/name", **more: Any) -> ModelReport:
    return ModelReport(model, [task_report(a_task(), a_summary(), results or (a_result(),))], **more)


def contents(report: ModelReport, settings: Settings | None = None, **more: Any) -> dict[str, Any]:
    return result_dict(report, RunFacts(settings or Settings(), **more))


def written(folder: Path, *reports: ModelReport) -> tuple[Path, ...]:
    return write_output(folder, reports, RunFacts(Settings()), STAMP)


# ---- the peer's own files -----------------------------------------------------------------------

DOCS = (
    {"q": "One and one?", "c": ["two", "three"], "a": 0, "n": 1.5, "x": None},
    {"q": "Größe – 中文?", "c": ["ja", "nein"], "a": 1, "n": 2.0, "x": None},
    {"q": 'Say "lo"\n', "c": ["lol", "lo"], "a": 0, "n": 2.0, "x": None},
)

BENCHMARKS = {
    "choices": """
task: choices
task_alias: tiny choices
output_type: multiple_choice
doc_to_text: "{{q}}"
doc_to_choice: "{{c}}"
doc_to_target: "{{a}}"
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
metadata: {version: 1.0}
""",
    "texts": """
task: texts
output_type: generate_until
doc_to_text: "Q: {{q}} é\\nA:"
doc_to_target: "{{c[a]}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 5}
repeats: 2
filter_list:
  - {name: strict-match, filter: [{function: regex, regex_pattern: "(l.)"}, {function: take_first}]}
  - {name: flexible, filter: [{function: take_first}]}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
""",
    "rolling": """
task: rolling
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{q}}"
metric_list: [{metric: word_perplexity}, {metric: bits_per_byte}]
metadata: {version: 2.5}
""",
    "targets": """
task: targets
output_type: loglikelihood
doc_to_text: "{{q}}"
doc_to_target: " {{c[a]}}"
metric_list:
  - {metric: perplexity, aggregation: perplexity, higher_is_better: false}
  - {metric: acc, aggregation: mean, higher_is_better: true}
metadata: {version: 2}
""",
    "inner": """
group: inner
group_alias: the inner
task: [choices]
aggregate_metric_list: [{metric: acc}]
metadata: {version: 3}
""",
    "outer": """
group: outer
task: [inner, texts, targets]
aggregate_metric_list: [{metric: acc}]
""",
    "plain": "group: plain\ntask: [rolling]\n",
}


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of the peer: its results with samples, its files, its tables."""
    pytest.importorskip("lm_eval")
    folder = tmp_path_factory.mktemp("peer")
    data = folder / "docs.jsonl"
    data.write_text("".join(json.dumps(doc) + "\n" for doc in DOCS), encoding="utf-8")
    source = f"""
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}, cache_dir: {folder / "cache"}}}
test_split: test
"""
    for name, text in BENCHMARKS.items():
        (folder / f"{name}.yaml").write_text(text + (source if "task:" in text[:7] else ""), encoding="utf-8")
    return run_peer(folder)


def run_peer(folder: Path) -> Any:
    import lm_eval
    from lm_eval.api.model import LM
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    class Lengths(LM):  # type: ignore[misc]
        """Answers by the length of what it is asked."""

        def loglikelihood(self, requests: Any) -> list[tuple[float, bool]]:
            return [(-len(r.args[1]) / 7, len(r.args[1]) < 4) for r in requests]

        def loglikelihood_rolling(self, requests: Any) -> list[float]:
            return [-len(r.args[0]) / 7 for r in requests]

        def generate_until(self, requests: Any) -> list[str]:
            return ["lol" for _ in requests]

    tracker = EvaluationTracker(output_path=str(folder / "out"))
    results = lm_eval.simple_evaluate(
        model=Lengths(),
        model_args="pretrained=org/name",
        tasks=["outer", "plain"],
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        bootstrap_iters=100,
        evaluation_tracker=tracker,
        limit=2,
    )
    samples = results.pop("samples")
    kept = json.loads(json.dumps(samples))
    tracker.save_results_aggregated(results=results, samples=samples)
    for task in results["configs"]:
        tracker.save_results_samples(task_name=task, samples=samples[task])
    (written,) = (folder / "out").iterdir()
    return SimpleNamespace(results=results, samples=kept, folder=written)


pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")


def our_report(peer: Any) -> ModelReport:
    """The numbers and samples of lm_eval as a report."""
    results = peer.results
    groups = results["group_subtasks"]
    tasks = [
        task_report(
            peers_task(results["configs"][name], results["results"][name]["alias"]),
            our_summary(results, name, ()),
            our_results(peer.samples[name]),
        )
        for name in results["n-samples"]
    ]
    inner_first = [
        group_report(our_summary(results, name, leaves(groups, name)), groups[name])
        for name in ("inner", "outer", "plain")
    ]
    return ModelReport("org/name", tasks, inner_first, spec="org/name")


def run_facts(peer: Any) -> RunFacts:
    return RunFacts(Settings(limit=2, bootstrap_iters=100, fewshot_multiturn=True), started=peer.results["date"])


def peers_task(config: Mapping[str, Any], alias: str) -> Task:
    task = a_task(config["task"], alias=alias, config=config)
    return replace(task, output_type=config["output_type"], path=Path(config["metadata"]["config_source"]))


def leaves(groups: Mapping[str, list[str]], name: str) -> tuple[str, ...]:
    return tuple(
        leaf for member in groups[name] for leaf in (leaves(groups, member) if member in groups else (member,))
    )


def our_summary(results: Mapping[str, Any], name: str, tasks: tuple[str, ...]) -> Summary:
    numbers, higher = results["results"][name], results["higher_is_better"][name]
    values = []
    for key, number in numbers.items():
        metric, _, filter_name = key.partition(",")
        if filter_name and not metric.endswith("_stderr"):
            stderr = numbers[f"{metric}_stderr,{filter_name}"]
            n = numbers.get("sample_count", {}).get(key, numbers["sample_len"])
            known = None if stderr == "N/A" else stderr
            values.append(MetricValue(metric, filter_name, number, known, higher.get(metric), n))
    version = results["versions"][name]
    return Summary(
        name,
        numbers["alias"],
        None if version in ("Yaml", "N/A") else version,
        results["n-shot"][name],
        numbers.get("sample_len", 0),
        results["n-samples"].get(name, {}).get("original", 0),
        tuple(values),
        tasks=tasks,
    )


def our_results(samples: list[dict[str, Any]]) -> list[DocResult]:
    found: dict[int, DocResult] = {}
    for row in samples:
        doc, name = row["doc_id"], row["filter"]
        known = found.get(doc)
        scores = {**(known.scores if known else {}), name: {metric: row[metric] for metric in row["metrics"]}}
        filtered = known.sample["filtered_resps"] if known and known.sample else {}
        kept = {key: row[key] for key in ("doc", "target", "arguments", "resps")}
        sample = {**kept, "filtered_resps": {**filtered, name: row["filtered_resps"]}}
        found[doc] = DocResult(doc, scores, sample=sample)
    return list(found.values())


#: What says who wrote the file, and when.
OWN_WORDS = {"date", "pretty_env_info", "transformers_version", "lm_eval_version", "total_evaluation_time_seconds"} | {
    "git_hash",
    "upper_git_hash",
    "model_source",
}


def test_files_equal_the_peers(peer: Any, tmp_path: Path) -> None:
    files = write_output(tmp_path, [our_report(peer)], run_facts(peer), STAMP)
    theirs = {path.name.rpartition("_")[0]: path for path in peer.folder.iterdir()}
    assert {path.name.rpartition("_")[0] for path in files} == set(theirs)
    assert {path.parent.name for path in files} == {peer.folder.name} == {"org__name"}
    ours = json.loads(files[0].read_text(encoding="utf-8"))
    expected = json.loads(theirs["results"].read_text(encoding="utf-8"))
    assert [key for key in ours if key != "pytest_llmeval"] == list(expected)
    for key in expected.keys() - OWN_WORDS - {"config", "higher_is_better"}:
        assert ours[key] == expected[key], key
    assert ours["config"].keys() == expected["config"].keys()
    assert {k: v for k, v in ours["config"].items() if k != "model"} == {
        k: v for k, v in expected["config"].items() if k != "model"
    }
    for path in files[1:]:
        assert path.read_text(encoding="utf-8") == theirs[path.name.rpartition("_")[0]].read_text(encoding="utf-8")


def test_a_group_has_the_directions_of_all_its_tasks(peer: Any) -> None:
    """The peer drops those of inner groups, so that its row of a group of groups has no arrow."""
    ours, theirs = result_dict(our_report(peer), run_facts(peer))["higher_is_better"], peer.results["higher_is_better"]
    assert ours["outer"] == {**theirs["outer"], "acc_norm": True}
    assert {name: value for name, value in ours.items() if name != "outer"} == {
        name: value for name, value in theirs.items() if name != "outer"
    }


@pytest.mark.parametrize("column", ["results", "groups"])
def test_the_peer_prints_our_file_as_its_own(peer: Any, tmp_path: Path, column: str) -> None:
    from lm_eval.utils import make_table

    files = write_output(tmp_path, [our_report(peer)], run_facts(peer), STAMP)
    assert make_table(json.loads(files[0].read_text(encoding="utf-8")), column) == make_table(peer.results, column)


def test_the_peer_finds_our_files(peer: Any, tmp_path: Path) -> None:
    from lm_eval import utils

    names = [path.as_posix() for path in write_output(tmp_path, [our_report(peer)], run_facts(peer), STAMP)]
    assert utils.get_results_filenames(names) == names[:1]
    samples = utils.get_sample_results_filenames(names)
    assert samples == names[1:]
    assert [utils.get_file_task_name(Path(name).name) for name in samples] == ["choices", "texts", "targets", "rolling"]
    assert {utils.get_file_datetime(Path(name).name) for name in samples} == {"2026-01-02T03-04-05.678900"}


# ---- results ------------------------------------------------------------------------------------


def test_numbers_of_tasks_and_groups() -> None:
    inner = a_summary("g", 0.75, None, version=None, tasks=("t",), num_fewshot=None)
    outer = a_summary("h", values=(), tasks=("t",))
    found = contents(a_report(groups=[group_report(inner, ["t"]), group_report(outer, ["g"])]))
    assert found["results"] == {
        "t": {"name": "t", "alias": "t", "sample_len": 4, "acc,none": 0.5, "acc_stderr,none": 0.25},
        "g": {
            "alias": "g",
            "name": "g",
            "sample_len": 4,
            "acc,none": 0.75,
            "acc_stderr,none": "N/A",
            "sample_count": {"acc,none": 4},
        },
        "h": {"alias": "h", "name": "h"},
    }
    assert found["groups"] == {"g": found["results"]["g"]}
    assert found["group_subtasks"] == {"g": ["t"], "h": ["g"]}
    assert found["versions"] == {"g": "N/A", "h": "1.0", "t": 1.0}
    assert found["n-shot"] == {"h": 0, "t": 0}
    assert found["n-samples"] == {"t": {"original": 9, "effective": 4}}


def test_groups_that_aggregate_nothing_leave_no_block() -> None:
    assert "groups" not in contents(a_report())


def test_directions_that_differ_are_none() -> None:
    down = task_report(a_task("u"), a_summary("u", values=(MetricValue("acc", "none", 0.5, None, False, 4),)))
    up, third = task_report(a_task("t"), a_summary("t")), task_report(a_task("t2"), a_summary("t2"))
    group = group_report(a_summary("g", tasks=("t", "u", "t2")), ["t", "u", "t2"])
    report = ModelReport("m", [up, down, third], [group])
    assert contents(report)["higher_is_better"]["g"] == {"acc": None}


def test_settings_are_kept() -> None:
    settings = Settings(
        limit=0.1,
        fewshot_seed=7,
        bootstrap_iters=10,
        system="Be brief.",
        gen_kwargs={"temperature": "0"},
        chat_template=True,
    )
    engine = {"scoring": "padded", "refused": {"tree": "other numbers"}}
    facts = {
        "model": {"model_dtype": "float32", "engine": engine},
        "tokenizer": {"max_length": 4096},
        "chat_template": "{{ messages }}",
    }
    report = a_report(spec="/tmp/ckpt", model="ckpt", facts=facts, id="new", usage={"tokens": 7})
    found = contents(report, settings, model_args="dtype=float32", seconds=1.5)
    assert found["config"] == {
        "model": "hf",
        "model_args": "pretrained=/tmp/ckpt,dtype=float32",
        "model_dtype": "float32",
        "batch_size": None,
        "batch_sizes": [],
        "device": None,
        "use_cache": None,
        "limit": 0.1,
        "bootstrap_iters": 10,
        "gen_kwargs": {"temperature": 0.0},
        "random_seed": 0,
        "numpy_seed": 1234,
        "torch_seed": 1234,
        "fewshot_seed": 7,
    }
    assert found["max_length"] == 4096
    assert found["system_instruction_sha"] == hash_of("Be brief.")
    assert found["chat_template_sha"] == hash_of("{{ messages }}")
    assert contents(report)["chat_template"] is None
    assert found["model_name"] == "ckpt"
    assert found["total_evaluation_time_seconds"] == "1.5"
    ours = {"format": 1, "variant": "new", "errors": {}, "usage": {"tokens": 7}, "engine": engine, "stopped_early": {}}
    assert found["pytest_llmeval"] == {**ours, "stop_seed": None, "gates": {}}
    assert re.fullmatch(r"pytest-llmeval-harness (N/A|\d.*)", found["lm_eval_version"])


@pytest.mark.parametrize(
    ("spec", "source"),
    [
        ("", "CUSTOM"),
        ("org/name", "hf"),
        ("/tmp/x", "hf"),
        ("a.gguf", "hf"),
        ("openai:http://h#m", "openai"),
        ("vllm:org/name", "vllm"),
        ("C:\\models\\x", "hf"),
    ],
)
def test_sources(spec: str, source: str) -> None:
    assert contents(a_report(spec=spec))["model_source"] == source


def test_a_tasks_config_says_what_was_used() -> None:
    written = {"until": ".", "max_tokens": 9}
    config = {"task": "t", "num_fewshot": 25, "generation_kwargs": written, "metadata": {"a": 1}}
    task = replace(a_task(config=config), output_type="generate_until")
    settings = Settings(gen_kwargs={"temperature": "0.5", "max_gen_toks": "8"})
    report = ModelReport("m", [task_report(task, a_summary(num_fewshot=5))])
    assert contents(report, settings)["configs"]["t"] == {
        "task": "t",
        "num_fewshot": 5,
        "generation_kwargs": {**written, "temperature": 0.5, "max_gen_toks": 8},
        "metadata": {"a": 1, "config_source": "t.yaml"},
    }


def test_docs_in_error_are_told_and_have_no_line() -> None:
    broken = DocResult(1, {}, error="gold 7 is no choice")
    results = [a_result(0), broken, a_result(2)]
    assert contents(a_report(*results))["pytest_llmeval"]["errors"] == {"t": {1: "gold 7 is no choice"}}
    assert [row["doc_id"] for row in sample_rows(results)] == [0, 2]


def test_gates_have_their_verdicts_and_what_led_to_them() -> None:
    verdict = Verdict("failed", "a: acc 0.1", {"acc": 0.1})
    report = a_report(gates=[GateLine("a.yaml::gate[acc]", verdict), GateLine("a.yaml::gate[f1]", None)])
    gates = contents(report)["pytest_llmeval"]["gates"]
    assert gates == {"a.yaml::gate[acc]": {"outcome": "failed", "sentence": "a: acc 0.1", "numbers": {"acc": 0.1}}}


@pytest.mark.parametrize(
    ("spec", "name"), [("", "tiny"), ("org/tiny", "org/tiny"), ("/tmp/tiny", "tiny"), ("./tiny", "./tiny")]
)
def test_the_name_of_a_model_in_files(spec: str, name: str) -> None:
    assert ModelReport("tiny", spec=spec).file_name == name


# ---- samples ------------------------------------------------------------------------------------


def test_a_line_of_a_sample_file() -> None:
    (row,) = sample_rows([a_result()])
    assert row == {
        "doc_id": 0,
        "doc": {"q": "q0", "n": 1},
        "target": "0",
        "arguments": {"gen_args_0": {"arg_0": "q0", "arg_1": " a"}, "gen_args_1": {"arg_0": "q0", "arg_1": " b"}},
        "resps": [[["-1.5", "True"]], [["-2.0", "False"]]],
        "filtered_resps": [["-1.5", "True"], ["-2.0", "False"]],
        "filter": "none",
        "metrics": ["acc"],
        # sha256 of the doc as JSON with indent 2, of "q0", of "0".
        "doc_hash": hash_of('{\n  "q": "q0",\n  "n": 1\n}'),
        "prompt_hash": hash_of("q0"),
        "target_hash": "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9",
        "acc": 1.0,
    }


def test_each_doc_once_a_filter_in_the_order_of_docs() -> None:
    """Whatever the order in which workers answered (B37)."""
    results = []
    for doc in (4, 1, 3, 0, 2):
        filtered = {"strict": ["a"], "loose": ["b"]}
        sample = a_sample(resps=[["x"]], filtered_resps=filtered)
        results.append(DocResult(doc, {"strict": {"em": 0.0}, "loose": {"em": 1.0}}, sample=sample))
    rows = list(sample_rows(results))
    assert [(row["filter"], row["doc_id"]) for row in rows] == [
        *(("strict", doc) for doc in range(5)),
        *(("loose", doc) for doc in range(5)),
    ]
    assert [row["filtered_resps"] for row in rows[4:6]] == [["a"], ["b"]]


def test_chosen_docs_keep_their_own_ids() -> None:
    """B33 f: docs 2, 5, 9, each beside its own columns."""
    rows = sample_rows([a_result(5), a_result(2), a_result(9)])
    assert [(row["doc_id"], row["doc"]["q"]) for row in rows] == [(2, "q2"), (5, "q5"), (9, "q9")]


def test_without_samples_there_is_no_sample_file(tmp_path: Path) -> None:
    files = written(tmp_path, a_report(a_result(sample=None)))
    assert [path.name for path in files] == ["results_2026-01-02T03-04-05.678900.json"]
    assert json.loads(files[0].read_text())["task_hashes"] == {}


def test_the_hash_of_a_task_is_over_its_lines() -> None:
    results = [a_result(0), a_result(1)]
    hashes = "".join(row["doc_hash"] + row["prompt_hash"] + row["target_hash"] for row in sample_rows(results))
    assert contents(a_report(*results))["task_hashes"] == {"t": hash_of(hashes)}
    assert contents(a_report(*results[::-1]))["task_hashes"] == {"t": hash_of(hashes)}


# ---- plain forms --------------------------------------------------------------------------------


def test_json_is_the_peers() -> None:
    value = {
        "text": "Größe 中文 \u2028",
        "numbers": [math.nan, math.inf, -math.inf, 1e-7, np.float32(0.5), np.int64(3), np.bool_(True)],
        "others": [date(2026, 1, 2), Path("a/b"), {"one"}, b"x", np.array([1, 2])],
    }
    handle = pytest.importorskip("lm_eval.utils").handle_non_serializable
    for indent in (None, 2):
        expected = json.dumps(value, indent=indent, default=handle, ensure_ascii=False)
        assert json_text(value, indent=indent) == expected
    assert '"numbers": [NaN, Infinity, -Infinity, 1e-07, 0.5, 3, true]' in json_text(value)


def test_sets_have_one_order() -> None:
    assert json_text({"b", "a", "c"}) == '["a", "b", "c"]'


def test_a_lone_surrogate_breaks_no_file(tmp_path: Path) -> None:
    broken = a_result(0, sample=a_sample("bad \ud800 text"))
    files = written(tmp_path, a_report(broken, a_result(1, sample=a_sample("good ö"))))
    first, second = files[1].read_text(encoding="utf-8").splitlines()
    assert json.loads(first)["doc"]["q"] == "bad \ud800 text"
    assert "good ö" in second


# ---- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "folder"),
    [
        ("org/name", "org__name"),
        ("ckpt-1000", "ckpt-1000"),
        ("./checkpoints/last", ".__checkpoints__last"),
        ("openai:http://localhost:8000/v1#m", "openai__http__localhost__8000__v1#m"),
        ("a b[c]*?", "a b__c__"),
        ("..", "__"),
        (".", "__"),
        ("", "__"),
        ("../../etc", "..__..__etc"),
        ("模型", "模型"),
    ],
)
def test_the_folder_of_a_model(tmp_path: Path, model: str, folder: str) -> None:
    files = written(tmp_path / "out", a_report(model=model))
    assert {path.parent for path in files} == {tmp_path / "out" / folder}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_models_of_one_name_have_folders_of_their_own(tmp_path: Path) -> None:
    files = written(tmp_path, a_report(id="a"), a_report(id="b"), a_report(model="other"))
    assert sorted({path.parent.name for path in files}) == ["org__name__a", "org__name__b", "other"]


def test_a_task_name_is_never_a_path(tmp_path: Path) -> None:
    task = task_report(a_task(), a_summary("../a\\b::c"), [a_result()])
    files = written(tmp_path, ModelReport("m", [task]))
    assert files[1].name == "samples_.._a_b::c_2026-01-02T03-04-05.678900.jsonl"
    assert files[1].parent == tmp_path / "m"


def test_nothing_but_whole_files_is_left(tmp_path: Path) -> None:
    written(tmp_path, a_report())
    broken = a_result(sample={**a_sample(), "arguments": [[1]]})
    with pytest.raises(AttributeError):
        written(tmp_path, a_report(broken, model="broken"))
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    stamp = "2026-01-02T03-04-05.678900"
    assert left == [f"org__name/results_{stamp}.json", f"org__name/samples_t_{stamp}.jsonl"]


@pytest.mark.parametrize("taken", ["out", "out/org__name"])
def test_a_file_in_the_way_is_a_setting_error(tmp_path: Path, taken: str) -> None:
    place = tmp_path / taken
    place.parent.mkdir(exist_ok=True)
    place.write_text("in the way")
    with pytest.raises(SettingError, match=r"--llmeval-output .*: cannot write .*; name a folder that can be written"):
        written(tmp_path / "out", a_report())


def test_a_name_that_no_file_can_have_is_a_setting_error(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot write"):
        written(tmp_path, a_report(model="nul\0"))
    with pytest.raises(SettingError, match="cannot write"):
        written(tmp_path, a_report(model="x" * 5000))


def test_the_folder_is_tried_before_the_work(tmp_path: Path) -> None:
    prepare_output(tmp_path / "new" / "deep")
    assert list((tmp_path / "new" / "deep").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match=r"--llmeval-output .*file: cannot write"):
        prepare_output(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_write_permission_is_a_setting_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(SettingError, match="Permission denied"):
        prepare_output(tmp_path / "x")
