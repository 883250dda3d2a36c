"""Tiny models of the real classes with random weights, and small data sets in the formats of the Hugging Face hub."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from small_language import SENTENCES, write_model, write_tokenizer

CLASSES = ("cat", "dog", "fox")
SIZE = 8  # pixels of an image's side
_BERT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
_GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {  # name → head, class, settings
    "vit": ("image-classification", "ViT", _BERT | {"image_size": SIZE, "patch_size": 4}),
    "resnet": (
        "image-classification",
        "ResNet",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
    ),
    "bert": ("sequence-classification", "Bert", _BERT | {"max_position_embeddings": 64}),
    "distilbert": (
        "sequence-classification",
        "DistilBert",
        {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 64},
    ),
    "roberta": ("sequence-classification", "Roberta", _BERT | {"max_position_embeddings": 66, "pad_token_id": 1}),
    "gpt2-classifier": ("sequence-classification", "GPT2", _GPT2),
    "opt-classifier": ("sequence-classification", "OPT", {}),
    "gpt2": ("causal-lm", "GPT2LMHead", _GPT2),
    "llama": ("causal-lm", "LlamaForCausalLM", _BERT | {"max_position_embeddings": 64}),
    "opt": ("causal-lm", "OPT", {}),
}


def write_hub_model(folder: Path, name: str, seed: int = 0, **changes: Any) -> Path:
    """Write a tiny model of `MODELS` with its tokenizer or image processor, and return the folder."""
    import torch
    import transformers

    head, kind, settings = MODELS[name]
    if name == "opt":
        return write_model(folder, seed, **changes)
    if head == "image-classification":
        from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

        ViTImageProcessorPil(size={"height": SIZE, "width": SIZE}).save_pretrained(folder)
    else:
        words = {"vocab_size": len(write_tokenizer(folder)), "bos_token_id": 0, "eos_token_id": 0}
        settings = words | settings
    if name == "opt-classifier":
        widths = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 32}
        settings = settings | widths | {"word_embed_proj_dim": 16, "max_position_embeddings": 64}
    family = kind.removesuffix("LMHead").removesuffix("ForCausalLM")
    ending = {"image-classification": "ForImageClassification", "sequence-classification": "ForSequenceClassification"}
    model = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM"}.get(name, family + ending.get(head, ""))
    labels = {} if head == "causal-lm" else {"num_labels": len(CLASSES) if "image" in head else 2}
    torch.manual_seed(seed)
    config = getattr(transformers, f"{family}Config")(**(settings | labels | changes))
    network = getattr(transformers, model)(config)
    for parameter in network.parameters():  # the default deviations hardly distinguish samples
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    for buffer_name, buffer in network.named_buffers():  # statistics as if the model had been trained
        if buffer_name.endswith("running_mean"):
            buffer.uniform_(-0.5, 0.5)
        elif buffer_name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
    network.save_pretrained(folder)
    return folder


def write_images(folder: Path, each: int = 6, classes: Sequence[str] = CLASSES) -> Path:
    """Write PNG files in <split>/<class>/: noise, brighter with the number of the class; return the folder."""
    from PIL import Image

    for split, count in (("train", each), ("test", 2)):
        for label, name in enumerate(classes):
            place = folder / split / name
            place.mkdir(parents=True)
            for number in range(count):
                rng = np.random.default_rng([label, number, len(split)])
                pixels = rng.integers(60 * label, 60 * label + 80, (10, 12, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.png")
    return folder


def texts(count: int) -> list[dict[str, Any]]:
    """Return rows with sentence, other (a second sentence), label, word (its name) and author."""
    rows = []
    for number in range(count):
        sentence, label = SENTENCES[number % len(SENTENCES)]
        other = SENTENCES[(number + 1) % len(SENTENCES)][0]
        word, author = ("bad", "good")[label], f"author {number % 3}"
        rows.append({"sentence": sentence, "other": other, "label": label, "word": word, "author": author})
    return rows


def write_texts(folder: Path, form: str = "csv", train: int = 24, test: int = 6) -> Path:
    """Write the rows of `texts` as train and test files: csv, tsv, jsonl, parquet or disk (`save_to_disk`)."""
    import datasets

    folder.mkdir(parents=True, exist_ok=True)
    splits = {"train": texts(train), "test": texts(test)}
    if form == "disk":
        tables = {split: datasets.Dataset.from_list(rows) for split, rows in splits.items()}
        datasets.DatasetDict(tables).save_to_disk(folder)
        return folder
    for split, rows in splits.items():
        path = folder / f"{split}.{form}"
        if form == "parquet":
            datasets.Dataset.from_list(rows).to_parquet(path)
        elif form == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        else:
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if form == "tsv" else ",")
                writer.writeheader()
                writer.writerows(rows)
    return folder
