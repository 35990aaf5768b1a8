"""Copy a checkpoint with a part of one layer's weights set to zero: a known regression.

    python perf/damage.py MODEL OUT --layer 15 --share 0.05

In every matrix of the layer that share of the weights, drawn at random by the seed, becomes zero. MODEL is a folder
with one ``model.safetensors``.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file
from safetensors.torch import save_file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layer", type=int, required=True)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    shutil.copytree(given.model, given.out, ignore=shutil.ignore_patterns("*.safetensors"))
    weights = load_file(given.model / "model.safetensors")
    generator = torch.Generator().manual_seed(given.seed)
    zeroed = total = 0
    for name in sorted(weights):
        matrix = weights[name]
        if f".layers.{given.layer}." not in name or matrix.ndim < 2:
            continue
        lost = torch.rand(matrix.shape, generator=generator) < given.share
        matrix[lost] = 0
        zeroed, total = zeroed + int(lost.sum()), total + lost.numel()
    if not total:
        raise SystemExit(f"{given.model} has no matrix in a layer {given.layer}")
    save_file(weights, given.out / "model.safetensors", metadata={"format": "pt"})
    print(f"layer {given.layer}: {zeroed:,} of {total:,} weights are zero now")


if __name__ == "__main__":
    main()
