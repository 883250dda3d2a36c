"""The data sets, files and models of the guard's runs: small, always identical, in the published layouts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

DEVICES = "device,from_s,to_s\nphone,0,1.5\nphone,2,9\ntablet,0.5,3\nlaptop,0,100\n"
LINK_TRACE = "device,from_s,up_mbps,down_mbps\na,0,0.002,0.02\na,1,0,0\na,1.7,0.004,\nb,0,0.003,0.01\nb,2.5,0.001,\n"
SPEEDS = "device,factor\na,0.5\nb,6\n"
TEXT = "To be, or not to be, that is the question: Whether 'tis nobler in the mind to suffer the slings and arrows"
OWN_MODEL = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

def build():
    return nn.Sequential(nn.Linear(4, 5), nn.PReLU(), nn.Linear(5, 3))

def load():
    rows = (torch.arange(320) * 37 % 101).reshape(80, 4) / 101
    classes = torch.arange(80) % 3
    return TensorDataset(rows[20:], classes[20:]), TensorDataset(rows[:20], classes[:20])
"""
REVIEWS = {"a charming journey": 1, "bleak and desperate": 0, "great fun": 1, "a terrible film": 0, "the best film": 1}
TRACE = "client,from_s,to_s\n0,0,1.5\n1,0.5,3\n1,3,4\n2,1,100\n3,0,0.7\n3,2,100\n"


def write_data(folder: Path) -> None:
    """Write small, always identical data sets in the published layouts, and traces for the faults of that name."""
    for name, text in {"trace": TRACE, "devices": DEVICES, "links": LINK_TRACE, "speeds": SPEEDS}.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    for name in ("mnist", "fashion-mnist"):
        (folder / name).mkdir()
        for split, count in (("train", 60), ("t10k", 10)):
            labels = np.arange(count, dtype=np.uint8) % 10
            images = _bytes(f"{name} {split}", count * 784).reshape(count, 28, 28) // 4
            images[np.arange(count), 2 * labels] = 255  # a bright row marks the class
            sizes = np.array([0x0803, count, 28, 28], ">u4").tobytes(), np.array([0x0801, count], ">u4").tobytes()
            (folder / name / f"{split}-images-idx3-ubyte").write_bytes(sizes[0] + images.tobytes())
            (folder / name / f"{split}-labels-idx1-ubyte").write_bytes(sizes[1] + labels.tobytes())
    ten, hundred = folder / "cifar-10-batches-bin", folder / "cifar-100-binary"
    batches = {ten / f"data_batch_{number}.bin": 2 for number in range(1, 6)} | {ten / "test_batch.bin": 5}
    for path, count in (batches | {hundred / "train.bin": 18, hundred / "test.bin": 5}).items():
        path.parent.mkdir(exist_ok=True)
        named = 1 if path.parent == ten else 2
        records = _bytes(path.name, count * (named + 3072)).reshape(count, -1)
        records[:, :named] %= 10
        path.write_bytes(records.tobytes())
    for split, more in (("train", 4), ("test", 1)):
        drawn = {f"f{n}": (_bytes(f"{split} {n}", 784 * (n + more)).reshape(-1, 784), n + more) for n in range(4)}
        writers = {who: ((x / 255).tolist(), [label % 62 for label in range(m)]) for who, (x, m) in drawn.items()}
        roles = {
            f"r{n}": ([TEXT[i : i + 80] for i in range(n, n + more)], [TEXT[i + 80] for i in range(n, n + more)])
            for n in range(4)
        }
        for name, people in (("leaf-femnist", writers), ("leaf-shakespeare", roles)):
            path = folder / name / split / "all_data.json"
            path.parent.mkdir(parents=True)
            said = {who: {"x": x, "y": y} for who, (x, y) in people.items()}
            counts = [len(each["y"]) for each in said.values()]
            path.write_text(json.dumps({"users": list(said), "num_samples": counts, "user_data": said}))
    table = [(n % 4, 20 + n * 7 % 50, ("cat", "dog", "")[n % 3], ("Oslo", "Rome")[n // 2 % 2]) for n in range(60)]
    rows = "".join(f"p{who},{age},{pet},{city}\n" for who, age, pet, city in table)
    (folder / "people.csv").write_text(f"person,age,pet,city\n{rows}", encoding="utf-8")
    (folder / "own.py").write_text(OWN_MODEL, encoding="utf-8")


def write_texts(folder: Path) -> None:
    """Write an OPT and a BERT of some thousand weights, the same everywhere, and reviews to learn from."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        OPTConfig,
        OPTForCausalLM,
        PreTrainedTokenizerFast,
    )
    from transformers.utils import logging

    logging.disable_progress_bar()
    marks = ["</s>", "<pad>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({mark: number for number, mark in enumerate(marks)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    ends = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
    sizes = {"vocab_size": len(marks), "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"max_position_embeddings": 96, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1}
    opt = OPTForCausalLM(OPTConfig(**sizes, ffn_dim=16, word_embed_proj_dim=8))
    bert = BertForSequenceClassification(BertConfig(**sizes, intermediate_size=16, num_labels=2))
    for name, network in (("opt", opt), ("bert", bert)):
        for place, weights in network.named_parameters():
            drawn = _bytes(f"{name} {place}", weights.numel()).reshape(tuple(weights.shape)).astype(np.float32)
            weights.data.numpy()[...] = drawn / 256 - 0.5
        network.save_pretrained(folder / name)
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ends).save_pretrained(folder / name)
    rows = "".join(f"{text}\t{label}\n" for text, label in REVIEWS.items())
    for place, form, splits in (("sst2", "tsv", ("train", "dev")), ("reviews", "tsv", ("train", "test"))):
        (folder / place).mkdir()
        for split in splits:
            (folder / place / f"{split}.{form}").write_text(f"sentence\tlabel\n{rows * 3}", encoding="utf-8")


def _bytes(name: str, count: int) -> Any:
    """Pseudorandom bytes, uint8 [count], the same everywhere."""
    return np.frombuffer(hashlib.shake_128(name.encode()).digest(count), np.uint8).copy()
