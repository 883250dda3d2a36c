"""A vision transformer of Hugging Face of which only the last block and the head are trained; needs `seedbus[hub]`.

    python examples/frozen_vit.py

Its weights are random, so that nothing is downloaded: put the name of a published model in the place of `small-vit`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from PIL import Image
from sklearn.datasets import load_digits
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessorPil

import seedbus


def write_images(folder: Path) -> None:
    """Write scikit-learn's digits as PNG files: SPLIT/CLASS/NUMBER.png."""
    digits = load_digits()
    for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        place = folder / ("test" if number % 6 == 0 else "train") / str(label)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 15.9).astype("uint8")).save(place / f"{number:04}.png")


def write_model(folder: Path) -> None:
    """Write a small vision transformer with random weights."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    ViTForImageClassification(ViTConfig(**sizes, image_size=8, patch_size=2, num_labels=10)).save_pretrained(folder)
    ViTImageProcessorPil(size={"height": 8, "width": 8}).save_pretrained(folder)


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    write_images(folder / "digits")
    write_model(folder / "small-vit")
    print(f"{'trained':<18}{'coordinates':>12}{'accuracy':>10}{'megabytes up':>14}")
    for trained in ({"kind": "head"}, {"kind": "last-blocks", "blocks": 1}, {"kind": "full"}):
        scenario = seedbus.load(
            {
                "name": "vit",
                "task": {
                    "name": "hugging-face",
                    "model": str(folder / "small-vit"),
                    "head": "image-classification",
                    "dataset": str(folder / "digits"),
                    "columns": {"image": "image", "label": "label"},
                    "train": trained,
                },
                "algorithm": {"name": "fedavg", "local_steps": 10, "learning_rate": 0.1},
                "participation": {"clients": 8, "cohort": 4},
                "evaluation": {"every": 30},
                "stop": {"rounds": 30},
            }
        )
        results = seedbus.run(scenario)
        reports, accuracy = results.summary["traffic"]["by_kind"]["report"], results.metrics["accuracy"].iloc[-1]
        size = results.summary["dimension"]
        print(f"{trained['kind']:<18}{size:>12,}{accuracy:>10.1%}{reports['bytes'] / 1e6:>14.2f}")


if __name__ == "__main__":
    main()
