"""Write a GGUF file as an ordinary checkpoint folder, so that it loads fast and everywhere.

    python perf/convert_gguf.py SmolLM2-135M-Instruct.Q4_1.gguf smol135 --dtype float32

The weights are the dequantized ones: the folder gives the logits that the file itself gives in that dtype.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path


DTYPES = ("float32", "bfloat16", "float16")


def convert(source: Path, folder: Path, dtype: str) -> None:
    """Load model, tokenizer and chat template from `source` and save them in `folder`, which is created."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers import AutoTokenizer

    place = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    AutoTokenizer.from_pretrained(**place).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(**place)
    config = model.config
    # transformers marks a model read from GGUF as quantized and refuses to save it, although its weights are plain.
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"):
        plain = AutoModelForCausalLM.from_config(config)
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.generation_config = model.generation_config
    plain.to(getattr(torch, dtype)).save_pretrained(folder)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Write a GGUF file as a checkpoint folder.")
    parser.add_argument("source", type=Path, help="the .gguf file")
    parser.add_argument("folder", type=Path, help="the folder to write; it must not exist or be empty")
    parser.add_argument("--dtype", choices=DTYPES, default=DTYPES[0])
    options = parser.parse_args(arguments)
    if not options.source.is_file():
        parser.error(f"no such file: {options.source}")
    if options.folder.exists() and any(options.folder.iterdir()):
        parser.error(f"{options.folder} is not empty")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    convert(options.source, options.folder, options.dtype)


if __name__ == "__main__":
    main()
