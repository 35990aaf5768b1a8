"""Writes a GGUF file of a tiny random llama with a byte-level vocabulary, as llama.cpp's converters write theirs."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np


LAYERS, HEADS, GROUPS, WIDTH, INNER, ROOM = 2, 4, 2, 32, 64, 128
SPECIAL = ("<unk>", "<s>", "</s>")
TEMPLATE = "{% for message in messages %}<s>{{ message['content'] }}{% endfor %}"


def write(path: Path) -> Path:
    """One file with weights in float32 and 8 bits, tokenizer and chat template."""
    tokens = [*SPECIAL, *_letters(), "Ġy", "es", "Ġyes"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(ROOM)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(["Ġ y", "e s", "Ġy es"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for name, shape in _shapes(len(tokens)).items():
        values = np.random.default_rng(len(name)).normal(0, 0.5, shape).astype(np.float32)
        kind = gguf.GGMLQuantizationType.Q8_0 if len(shape) == 2 and "blk" in name else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _letters() -> list[str]:
    """The 256 bytes as byte-level vocabularies write them: printable ones as they are, others moved up."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    moved = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(moved)) for byte in range(256)]


def _shapes(words: int) -> dict[str, tuple[int, ...]]:
    keys = WIDTH // HEADS * GROUPS
    layer = {
        "attn_norm": (WIDTH,),
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (keys, WIDTH),
        "attn_v": (keys, WIDTH),
        "attn_output": (WIDTH, WIDTH),
        "ffn_norm": (WIDTH,),
        "ffn_gate": (INNER, WIDTH),
        "ffn_up": (INNER, WIDTH),
        "ffn_down": (WIDTH, INNER),
    }
    blocks = {f"blk.{i}.{name}.weight": shape for i in range(LAYERS) for name, shape in layer.items()}
    return {"token_embd.weight": (words, WIDTH), "output_norm.weight": (WIDTH,), **blocks}
