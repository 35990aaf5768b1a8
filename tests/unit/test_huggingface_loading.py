"""Models by path: what is read, what is refused, what identifies them, and how they write a chat."""

from __future__ import annotations

import logging
import math
import os
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tablemodels as tables
import torch
import transformers
from safetensors.torch import load_file
from safetensors.torch import save_file

from pytest_llmeval._engine.devices import share_processors
from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import LM
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._models import load_model
from pytest_llmeval._models import parse_spec
from pytest_llmeval._models import window_of
from pytest_llmeval._models import wrap_model


CPU = {"device": "cpu"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tables.save(tmp_path_factory.mktemp("models") / "bigram", tables.bigram(), tables.words(auto_bos=True))


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(saved, tmp_path / "bigram"))


def load(path: Path, **args: object) -> Any:
    return load_model(parse_spec(str(path), CPU | {name: str(value) for name, value in args.items()}))


class TestFolder:
    def test_it_answers_as_the_model_in_memory(self, saved: Path) -> None:
        lm = load(saved)
        assert isinstance(lm, LM)
        assert (lm.name, lm.max_length) == ("bigram", 600)
        answers = lm.loglikelihood([("Q x A", " yes"), ("Q x A", " no")])
        assert [answer[0] for answer in answers] == pytest.approx([math.log(0.5), math.log(0.3)], abs=1e-4)
        assert lm.loglikelihood_rolling(["Q x A"]) == pytest.approx([-2.813411], abs=1e-4)
        assert lm.generate_until([("Q x", GenerationKwargs(max_gen_toks=2))]) == ["A yes"]

    def test_weights_are_read_when_they_are_needed(self, folder: Path) -> None:
        lm = load(folder)
        (folder / "model.safetensors").write_bytes(b"")
        with pytest.raises(ModelError, match="the weights cannot be loaded"):
            lm.prepare()

    def test_it_can_be_closed_and_used_again(self, saved: Path) -> None:
        lm = load(saved)
        before = lm.loglikelihood([("A", " yes")])
        lm.close()
        lm.close()
        assert lm.loglikelihood([("A", " yes")]) == before

    def test_what_result_files_say_of_it(self, saved: Path) -> None:
        found = load(saved, dtype="bfloat16", max_length=9).describe()
        parameters = tables.bigram().num_parameters()
        assert found == {
            "model": {
                "model_num_parameters": parameters,
                "model_dtype": "torch.bfloat16",
                "model_revision": "main",
                "model_sha": "",
                "engine": {"scoring": "tree"},
            },
            "tokenizer": {
                "tokenizer_pad_token": ["<pad>", "0"],
                "tokenizer_eos_token": ["</s>", "2"],
                "tokenizer_bos_token": ["<s>", "1"],
                "eot_token_id": 2,
                "max_length": 9,
            },
            "chat_template": None,
        }

    @pytest.mark.parametrize("dtype", ["auto", "float32", "bfloat16"])
    def test_dtype(self, saved: Path, dtype: str) -> None:
        lm = load(saved, dtype=dtype)
        assert lm.engine._model.dtype == (torch.bfloat16 if dtype == "bfloat16" else torch.float32)
        assert lm.loglikelihood([("A", " yes")])[0][0] == pytest.approx(math.log(0.5), abs=1e-2)

    def test_arguments_that_change_what_is_scored(self, saved: Path) -> None:
        assert load(saved, max_length=3).loglikelihood([("Q x A", " yes no")])[0].truncated
        assert load(saved, add_bos_token=False).loglikelihood([("A", " yes")])[0][0] == pytest.approx(
            math.log(0.5), abs=1e-4
        )
        assert load(saved, prefix_token_id=tables.A).loglikelihood([("", "yes")])[0][0] == pytest.approx(
            math.log(0.5), abs=1e-4
        )

    def test_another_tokenizer(self, folder: Path, tmp_path: Path) -> None:
        tables.words().save_pretrained(tmp_path / "words")
        (folder / "tokenizer.json").unlink()
        (folder / "tokenizer_config.json").unlink()
        lm = load(folder, tokenizer=tmp_path / "words")
        assert lm.loglikelihood([("Q x A", " yes")])[0][0] == pytest.approx(math.log(0.5), abs=1e-4)

    def test_nothing_is_said(self, saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            load(saved, dtype="bfloat16", attn_implementation="eager").prepare()
        assert capfd.readouterr() == ("", "")

    def test_progress_bars_are_as_they_were(self, saved: Path) -> None:
        from transformers.utils import logging

        assert logging.is_progress_bar_enabled()
        handlers = list(logging.get_logger("transformers").handlers)
        load(saved).prepare()
        assert logging.is_progress_bar_enabled()
        assert logging.get_logger("transformers").handlers == handlers


class TestRefused:
    def test_weights_that_would_be_random(self, folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        del weights["transformer.h.0.mlp.c_fc.weight"]
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ModelError, match=r"lacks 1 of its weights, which would be random: transformer\.h"):
            load(folder).prepare()

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            (
                {"transformer.wte.weight": (9, 8)},
                "1 of its weights does not have the shape in the config, first transformer.wte.weight: saved as "
                "(9, 8), expected (8, 8); use config and weights that were saved together",
            ),
            (
                {"transformer.wte.weight": (9, 8), "transformer.h.0.mlp.c_fc.weight": (8, 5)},
                "2 of its weights do not have the shape in the config, first transformer.h.0.mlp.c_fc.weight: "
                "saved as (8, 5), expected (8, 4); use config and weights that were saved together",
            ),
        ],
    )
    def test_weights_of_another_shape(self, folder: Path, changed: dict[str, Any], message: str) -> None:
        weights = load_file(folder / "model.safetensors")
        weights |= {name: torch.zeros(shape) for name, shape in changed.items()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ModelError) as error:
            load(folder).prepare()
        assert str(error.value) == f"model '{folder}': {message}"

    def test_a_reason_that_stands_in_a_report_is_told_with_it(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def read(**_: Any) -> None:
            logging.getLogger("transformers.core").warning("\x1b[1mLOAD REPORT\x1b[0m\nw | CONVERSION")
            raise RuntimeError("See the above report!")

        monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", read)
        with pytest.raises(ModelError, match=r"loaded: See the above report!\nLOAD REPORT\nw \| CONVERSION$"):
            load(folder).prepare()

    def test_log_lines_of_transformers_do_not_reach_the_captured_log(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        # As transformers sets it where the variable CI is set.
        monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
        weights = load_file(folder / "model.safetensors")
        save_file(weights | {"value_head": torch.ones(2)}, folder / "model.safetensors", metadata={"format": "pt"})
        with pytest.warns(UserWarning, match="does not use 1 of the weights"):
            load(folder).prepare()
        assert caplog.messages == []
        assert logging.getLogger("transformers").propagate

    def test_weights_without_use_are_a_warning(self, folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        save_file(weights | {"value_head": torch.ones(2)}, folder / "model.safetensors", metadata={"format": "pt"})
        with pytest.warns(UserWarning, match="GPT2LMHeadModel does not use 1 of the weights: value_head"):
            load(folder).prepare()

    def test_an_encoder_decoder_model(self, folder: Path) -> None:
        transformers.T5Config().save_pretrained(folder)
        with pytest.raises(ModelError, match="is an encoder-decoder model: use a decoder model"):
            load(folder)

    def test_a_model_type_that_nobody_knows(self, folder: Path) -> None:
        (folder / "config.json").write_text('{"model_type": "nonesuch"}')
        with pytest.raises(ModelError, match=r"the config cannot be loaded: .*nonesuch"):
            load(folder)

    def test_a_broken_tokenizer(self, folder: Path) -> None:
        (folder / "tokenizer.json").write_text("{}")
        with pytest.raises(ModelError, match="the tokenizer cannot be loaded"):
            load(folder)

    def test_a_device_that_is_not_there(self, saved: Path) -> None:
        with pytest.raises(ModelError, match="model argument device=nonesuch: this machine cannot use it"):
            load(saved, device="nonesuch")

    def test_a_hub_id_without_a_network(self) -> None:
        with pytest.raises(ModelError, match="model 'no-such-org/no-such-model': the config cannot be loaded") as error:
            load_model(parse_spec("no-such-org/no-such-model", CPU))
        assert str(error.value).endswith(f"(there is no such folder in {Path.cwd()} either)")


class TestFingerprint:
    def test_it_is_the_content_wherever_it_lies(self, saved: Path, folder: Path) -> None:
        assert load(saved).fingerprint == load(folder).fingerprint
        assert len(load(saved).fingerprint) == 64

    @pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
    def test_one_byte_of_a_part_changes_it(self, folder: Path, name: str) -> None:
        before = load(folder).fingerprint
        content = bytearray((folder / name).read_bytes())
        if name == "model.safetensors":
            content[-1] ^= 1
        else:
            content += b"\n"
        (folder / name).write_bytes(content)
        assert load(folder).fingerprint != before

    def test_a_chat_template_changes_it_and_a_readme_does_not(self, folder: Path) -> None:
        before = load(folder).fingerprint
        (folder / "README.md").write_text("about")
        (folder / "trainer_state.json").write_text("{}")
        assert load(folder).fingerprint == before
        (folder / "chat_template.jinja").write_text("{{ messages }}")
        assert load(folder).fingerprint != before

    def test_arguments_change_it_if_answers_depend_on_them(self, saved: Path) -> None:
        before = load(saved).fingerprint
        assert load(saved, batch_size=3, max_batch_tokens=99).fingerprint == before
        changed = [{"dtype": "bfloat16"}, {"attn_implementation": "eager"}, {"max_length": 9}, {"add_bos_token": True}]
        assert len({load(saved, **args).fingerprint for args in changed} - {before}) == len(changed)

    def test_it_is_read_once_and_only_when_asked(self, folder: Path) -> None:
        lm = load(folder)
        before = lm.fingerprint
        (folder / "model.safetensors").unlink()
        assert lm.fingerprint == before


class TestChat:
    messages = ({"role": "system", "content": "S"}, {"role": "user", "content": "Q x"})

    def chat(self, template: str | None, tokenizer: Any = None) -> Any:
        tokenizer = tokenizer or tables.words(auto_bos=True)
        tokenizer.chat_template = template
        return wrap_model(tables.bigram(), tokenizer, name="m")

    def test_the_model_s_own_template_writes_it(self) -> None:
        lm = self.chat(
            "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</{{ m['role'] }}>{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}"
        )
        assert lm.apply_chat_template(self.messages) == "<system>S</system><user>Q x</user><assistant>"
        begun = [*self.messages, {"role": "assistant", "content": "So"}]
        assert lm.apply_chat_template(begun, False) == "<system>S</system><user>Q x</user><assistant>So"

    def test_bos_of_a_template_is_the_only_one(self) -> None:
        lm = self.chat("<s> {{ messages[0]['content'] }} A\n")
        context = lm.apply_chat_template([{"role": "user", "content": "Q x"}])
        answers = lm.loglikelihood([(context, "yes"), (context, "no")])
        assert [answer[0] for answer in answers] == pytest.approx([-0.693147, -1.203973], abs=1e-4)

    @pytest.mark.parametrize(
        "template",
        [
            "{% if not date_string is defined %}{% set date_string = 'today' %}{% endif %}{{ date_string }}",
            "{{ strftime_now('%d %b %Y') }}",
            '{{ strftime_now( "%d %b %Y" ) }}',
        ],
    )
    def test_today_is_always_the_same_day(self, template: str) -> None:
        assert self.chat(template).apply_chat_template(self.messages) == "26 Jul 2024"

    def test_no_template_is_an_error(self) -> None:
        with pytest.raises(ModelError, match="model 'm' has no chat template: run it without --llmeval-chat-template"):
            self.chat(None).apply_chat_template(self.messages)

    def test_a_refused_system_message_is_left_out_with_a_warning(self) -> None:
        lm = self.chat(
            "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
            "{{ messages[0]['content'] }}"
        )
        with pytest.warns(UserWarning, match=r"does not accept a system message \(no system role\): it is omitted"):
            assert lm.apply_chat_template(self.messages) == "Q x"

    def test_a_template_that_fails_is_an_error(self) -> None:
        with pytest.raises(ModelError, match="the chat template of model 'm' fails: too short"):
            self.chat("{{ raise_exception('too short') }}").apply_chat_template(self.messages)


@pytest.mark.parametrize(
    ("config", "limit", "expected"),
    [
        ({"n_positions": 7, "max_position_embeddings": 9}, 5, 7),
        ({"max_position_embeddings": 9, "n_ctx": 8}, 5, 9),
        ({"n_ctx": 8}, 5, 8),
        ({"text_config": SimpleNamespace(max_position_embeddings=11), "max_position_embeddings": 9}, 5, 11),
        ({}, 5, 5),
        ({}, int(1e30), 2048),
        ({}, None, 2048),
    ],
)
def test_the_window_of_a_model(config: dict[str, Any], limit: int | None, expected: int) -> None:
    assert window_of(SimpleNamespace(**config), SimpleNamespace(model_max_length=limit)) == expected


def test_workers_share_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr("torch.set_num_threads", seen.append)
    monkeypatch.setattr("torch.get_num_threads", lambda: 8)
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "4")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    share_processors(torch.device("cpu"))
    assert seen == [4]
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    share_processors(torch.device("cpu"))
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "1")
    share_processors(torch.device("cpu"))
    assert seen == [4]


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    import tinygguf

    return tinygguf.write(tmp_path_factory.mktemp("gguf") / "tiny.Q8_0.gguf")


class TestGguf:
    requests = (("Is it? ", "yes"), ("é", " yes yes"), ("", "no"))

    def convert(self, source: Path, folder: Path, *more: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "perf"))
        import convert_gguf

        convert_gguf.main([str(source), str(folder), *more])

    def test_a_converted_folder_gives_the_same_logits(
        self, gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.convert(gguf_file, tmp_path / "tiny", monkeypatch=monkeypatch)
        straight, converted = load(gguf_file), load(tmp_path / "tiny")
        assert straight.loglikelihood(self.requests) == converted.loglikelihood(self.requests)
        assert straight.loglikelihood_rolling(["yes é"]) == converted.loglikelihood_rolling(["yes é"])
        assert (straight.name, straight.max_length) == ("tiny.Q8_0.gguf", 128)
        chat = [{"role": "user", "content": "Hi"}]
        assert straight.apply_chat_template(chat) == converted.apply_chat_template(chat) == "<s>Hi"
        ids = torch.tensor([[5, 6, 7]])
        with torch.inference_mode():
            assert torch.equal(straight.engine._model(ids).logits, converted.engine._model(ids).logits)

    def test_a_file_inside_a_folder(self, gguf_file: Path) -> None:
        inside = load(gguf_file.parent, gguf_file=gguf_file.name)
        assert inside.loglikelihood(self.requests) == load(gguf_file).loglikelihood(self.requests)

    def test_nothing_is_said(self, gguf_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
        load(gguf_file).prepare()
        assert capfd.readouterr() == ("", "")

    def test_its_fingerprint_is_its_content(self, gguf_file: Path, tmp_path: Path) -> None:
        copy = Path(shutil.copy(gguf_file, tmp_path / "other.gguf"))
        assert load(copy).fingerprint == load(gguf_file).fingerprint
        with copy.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x01")
        assert load(copy).fingerprint != load(gguf_file).fingerprint

    def test_the_script_refuses_what_it_cannot_use(
        self, gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit):
            self.convert(tmp_path / "none.gguf", tmp_path / "out", monkeypatch=monkeypatch)
        assert f"no such file: {tmp_path / 'none.gguf'}" in capsys.readouterr().err
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "x").write_text("")
        with pytest.raises(SystemExit):
            self.convert(gguf_file, tmp_path / "full", monkeypatch=monkeypatch)
        assert "is not empty" in capsys.readouterr().err

    def test_half_precision(self, gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.convert(gguf_file, tmp_path / "half", "--dtype", "bfloat16", monkeypatch=monkeypatch)
        assert load(tmp_path / "half").engine._model.dtype == torch.bfloat16
