"""What a model spec may be, and what is said of one that is wrong, all without torch."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval import _models
from pytest_llmeval._errors import ModelError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._fake import FakeLM
from pytest_llmeval._lm import LM
from pytest_llmeval._models import HuggingFaceSpec
from pytest_llmeval._models import ModelArgs
from pytest_llmeval._models import ServerSpec
from pytest_llmeval._models import load_model
from pytest_llmeval._models import parse_spec
from pytest_llmeval._models.arguments import ServerArgs


def safetensors(size: int = 8, promised: int | None = None) -> bytes:
    """A safetensors file of one tensor of `size` bytes, whose header may promise more."""
    entry = {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, size if promised is None else promised]}}
    header = json.dumps(entry).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint folder that is fine as far as names, sizes and first bytes tell."""
    path = tmp_path / "ckpt-1000"
    path.mkdir()
    (path / "config.json").write_text('{"model_type": "llama"}')
    (path / "model.safetensors").write_bytes(safetensors())
    (path / "tokenizer.json").write_text("{}")
    return path


def complaint(spec: object, args: Mapping[str, str] | None = None, **keywords: Any) -> str:
    with pytest.raises(SettingError) as error:
        parse_spec(str(spec), args or {}, **keywords)
    return str(error.value)


def parsed(spec: str) -> HuggingFaceSpec:
    found = parse_spec(spec, {})
    assert isinstance(found, HuggingFaceSpec)
    return found


class TestSpec:
    def test_a_folder_is_fine(self, folder: Path) -> None:
        args = {"dtype": "float32"}
        assert parse_spec(str(folder), args) == HuggingFaceSpec("folder", str(folder), ModelArgs(dtype="float32"))
        assert parsed(f"hf:{folder}") == HuggingFaceSpec("folder", str(folder), ModelArgs())

    @pytest.mark.parametrize("spec", ["org/name", "gpt2", "hf:org/name-1.5_b", "Qwen/Qwen2.5-0.5B"])
    def test_a_hub_id_is_fine_without_a_network(self, spec: str) -> None:
        assert parsed(spec) == HuggingFaceSpec("hub", spec.removeprefix("hf:"), ModelArgs())

    def test_a_relative_folder_and_a_home(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(folder.parent)
        assert parsed("ckpt-1000") == HuggingFaceSpec("folder", "ckpt-1000", ModelArgs())
        assert parsed("./ckpt-1000/").name == "ckpt-1000"
        monkeypatch.setenv("HOME", str(folder.parent))
        assert parsed("~/ckpt-1000") == HuggingFaceSpec("folder", str(folder), ModelArgs())
        monkeypatch.chdir(folder)
        assert parsed(".").name == "ckpt-1000"
        assert parsed("org/name").name == "org/name"

    @pytest.mark.parametrize(
        "spec", ["./nowhere", "/no/where", "../nowhere", "~/nowhere", "a/b/c", r"C:\models\x", "C:/m"]
    )
    def test_a_path_that_is_not_there(self, spec: str) -> None:
        assert complaint(spec).startswith(f"model {spec!r}: there is no such folder (looked in /")

    @pytest.mark.parametrize("spec", ["org/na me", "org/-name", "a--b", "org/a..b", "ünicode"])
    def test_what_can_be_nothing(self, spec: str) -> None:
        assert complaint(spec) == f"model {spec!r} is neither a folder, nor a .gguf file, nor a hub id such as org/name"

    def test_an_empty_one(self) -> None:
        assert complaint("") == "model '': expected a folder, a hub id such as org/name, or a .gguf file"

    def test_a_file_that_is_no_model(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("")
        assert "is a file and not a model: expected a folder, a hub id, or a .gguf file" in complaint(
            tmp_path / "notes.txt"
        )


class TestScheme:
    def test_an_unknown_one_lists_the_known(self) -> None:
        assert complaint("foo:bar") == "model 'foo:bar': no scheme 'foo' is registered; there are: hf, openai"
        schemes = {"remote": lambda rest, args: FakeLM()}
        assert complaint("remot:x", schemes=schemes).endswith("no scheme 'remot' is registered; did you mean 'remote'?")

    def test_those_of_plugins_say_so(self) -> None:
        message = complaint("vllm:org/name")
        assert "models come with a plugin" in message
        assert "pytest_llmeval_register_models" in message

    def test_a_registered_one_gets_rest_and_args(self) -> None:
        seen: list[tuple[str, Mapping[str, str]]] = []

        def serve(rest: str, args: Mapping[str, str]) -> LM:
            seen.append((rest, args))
            return FakeLM()

        schemes = {"vllm": serve}
        spec = parse_spec("vllm:a:b", {"timeout": "3"}, schemes=schemes)
        assert seen == []
        assert isinstance(load_model(spec), FakeLM)
        assert seen == [("a:b", {"timeout": "3"})]

    def test_a_server_has_an_address_and_a_model(self) -> None:
        assert parse_spec("openai:http://h:8000/v1/#org/m", {"timeout": "2.5", "door": "echo"}) == ServerSpec(
            "http://h:8000", "org/m", ServerArgs(timeout=2.5, door="echo")
        )
        assert parse_spec("openai:https://h/llm", {}) == ServerSpec("https://h/llm", "", ServerArgs())

    @pytest.mark.parametrize(
        ("spec", "args", "told"),
        [
            ("openai:localhost:8000#m", {}, "'openai:localhost:8000#m': expected openai:http://HOST:PORT/v1#MODEL"),
            ("openai:http:///v1", {}, "expected openai:http://HOST:PORT/v1#MODEL"),
            ("openai:http://h#m", {"timeout": "0"}, "model argument timeout: expected a number above 0, got '0'"),
            ("openai:http://h#m", {"dtype": "auto"}, "model argument 'dtype' is unknown; there are: "),
            ("openai:http://h#m", {"door": "back"}, "expected auto, generate, tokens, prompt_logprobs, echo or forced"),
        ],
    )
    def test_a_wrong_address_or_argument_of_a_server(self, spec: str, args: Mapping[str, str], told: str) -> None:
        assert told in complaint(spec, args)

    @pytest.mark.parametrize("spec", ["openai:http://me:s3cret@h/v1#m", "openai:http://h/v1?key=s3cret#m"])
    def test_an_address_with_a_secret_is_refused_without_showing_it(self, spec: str) -> None:
        message = complaint(spec)
        assert "holds a password or a query" in message
        assert "api_key_env" in message
        assert "s3cret" not in message

    def test_a_drive_is_no_scheme(self) -> None:
        assert complaint(r"C:\models\x").startswith(r"model 'C:\\models\\x': there is no such folder")

    def test_a_folder_with_a_colon_is_a_folder(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(folder.parent)
        folder.rename("run:1000")
        assert parsed("run:1000") == HuggingFaceSpec("folder", "run:1000", ModelArgs())


class TestFolder:
    def test_without_config(self, folder: Path) -> None:
        (folder / "config.json").unlink()
        assert complaint(folder) == f"model '{folder}' has no config.json: expected a folder written by save_pretrained"

    def test_with_an_adapter_only(self, folder: Path) -> None:
        (folder / "config.json").rename(folder / "adapter_config.json")
        assert "holds an adapter only: merge it" in complaint(folder)

    def test_with_gguf_files_only(self, folder: Path) -> None:
        (folder / "config.json").unlink()
        (folder / "m.Q4.gguf").write_bytes(b"GGUF")
        assert complaint(folder).endswith(f"is a folder of GGUF files: name the file, e.g. '{folder / 'm.Q4.gguf'}'")

    @pytest.mark.parametrize(("text", "why"), [("{", "is not JSON: "), ("[]", "does not hold a JSON object")])
    def test_with_a_broken_config(self, folder: Path, text: str, why: str) -> None:
        (folder / "config.json").write_text(text)
        assert f"model '{folder}': config.json {why}" in complaint(folder)

    def test_without_weights(self, folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        assert complaint(folder) == f"model '{folder}' has no weights (looked for *.safetensors, *.bin)"

    def test_without_one_shard(self, folder: Path) -> None:
        shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
        (folder / "model.safetensors").rename(folder / shards["a"])
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
        assert complaint(folder) == (
            f"model '{folder}': 1 of the 2 files that model.safetensors.index.json lists is missing: "
            "model-00002-of-00002.safetensors"
        )
        (folder / shards["b"]).write_bytes(safetensors())
        parse_spec(str(folder), {})

    def test_with_weights_of_the_older_kind(self, folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / "pytorch_model.bin").write_bytes(b"PK")
        parse_spec(str(folder), {})

    @pytest.mark.parametrize(
        ("content", "why"),
        [
            (b"", "it is empty"),
            (b"version https://git-lfs.github.com/spec/v1\noid", "it is a git-lfs pointer; run 'git lfs pull'"),
            (safetensors(8, promised=16), "cannot be read: it is cut short (86 bytes expected)"),
            (safetensors()[:20], "cannot be read: the header is damaged"),
            (b"\xff" * 50, "cannot be read: the header is damaged"),
        ],
    )
    def test_with_weights_that_are_none(self, folder: Path, content: bytes, why: str) -> None:
        (folder / "model.safetensors").write_bytes(content)
        message = complaint(folder)
        assert message.startswith(f"model weights '{folder / 'model.safetensors'}'")
        assert why in message

    def test_without_tokenizer(self, folder: Path) -> None:
        (folder / "tokenizer.json").unlink()
        assert "has no tokenizer (looked for tokenizer.json, " in complaint(folder)
        parse_spec(str(folder), {"tokenizer": "org/name"})


class TestGguf:
    def test_one_that_is_not_there(self, tmp_path: Path) -> None:
        assert complaint(tmp_path / "m.gguf") == f"model '{tmp_path / 'm.gguf'}': there is no such file"

    @pytest.mark.parametrize(
        ("content", "why"),
        [
            (b"PK\x03\x04", r"it starts with b'PK\x03\x04', not b'GGUF'"),
            (b"", "it is empty"),
            (b"version https://git-lfs.github.com/spec/v1", "it is a git-lfs pointer; run 'git lfs pull'"),
        ],
    )
    def test_one_that_is_none(self, tmp_path: Path, content: bytes, why: str) -> None:
        path = tmp_path / "m.gguf"
        path.write_bytes(content)
        assert complaint(path) == f"model '{path}' is not a GGUF file: {why}"

    def test_without_the_packages(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "m.gguf"
        path.write_bytes(b"GGUF\x03")
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "gguf" else object())
        assert complaint(path) == (
            f"model '{path}': reading GGUF needs gguf: pip install 'pytest-llmeval-harness[gguf]'"
        )

    def test_one_inside_a_folder(self, folder: Path) -> None:
        assert complaint(folder, {"gguf_file": "m.gguf"}) == f"model '{folder / 'm.gguf'}': there is no such file"


class TestArguments:
    def test_values_are_texts_until_they_are_read(self) -> None:
        texts = {"revision": "0001", "max_length": "512", "trust_remote_code": "False", "add_bos_token": "true"}
        expected = ModelArgs(revision="0001", max_length=512, trust_remote_code=False, add_bos_token=True)
        assert parse_spec("org/name", texts) == HuggingFaceSpec("hub", "org/name", expected)

    @pytest.mark.parametrize(
        ("name", "value", "expected"),
        [
            ("dtype", "floot32", "auto, bfloat16, float16, float32 or float64"),
            ("engine", "trees", "auto, padded or tree"),
            ("max_length", "2k", "a whole number from 1"),
            ("max_length", "0", "a whole number from 1"),
            ("batch_size", "-1", "a whole number from 1"),
            ("trust_remote_code", "maybe", "true or false"),
            ("device", "gpu 1", "a device such as cpu, cuda, cuda:1 or mps"),
            ("prefix_token_id", "<s>", "a whole number from 0"),
            ("revision", "", "a text"),
        ],
    )
    def test_an_ill_typed_value(self, name: str, value: str, expected: str) -> None:
        assert complaint("org/name", {name: value}) == f"model argument {name}: expected {expected}, got {value!r}"

    def test_an_unknown_name(self) -> None:
        assert complaint("org/name", {"dtyp": "auto"}) == "model argument 'dtyp' is unknown; did you mean 'dtype'?"
        assert "'zzz' is unknown; there are: add_bos_token, attn_implementation, " in complaint(
            "org/name", {"zzz": "1"}
        )


def test_checking_imports_nothing_heavy(folder: Path) -> None:
    code = (
        "import sys; from pytest_llmeval._models import parse_spec; parse_spec(sys.argv[1], {'dtype': 'float32'}); "
        "print(sorted({'torch', 'transformers', 'numpy', 'jinja2'} & set(sys.modules)))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(_models.__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "[]"


def test_without_torch_the_error_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(
        ModelError, match=r"needs torch, which this Python does not have: pip install torch \(for a build"
    ):
        load_model(parse_spec(str(folder), {}))
