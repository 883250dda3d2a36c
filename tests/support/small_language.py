"""A language model of 16,000 weights and small data sets, in the layouts of the published ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seedbus.models import Iid
from seedbus.models.tasks.language_model import LanguageModel

SENTENCES = [
    ("a charming and often affecting journey", 1),
    ("unflinchingly bleak and desperate", 0),
    ("great fun , and great to look at", 1),
    ("a terrible , tedious film", 0),
    ("the best film of the year", 1),
    ("no wit , only labored gags", 0),
]
WORDS = " ".join(text for text, _ in SENTENCES) + ' It was great terrible Yes, No, or Maybe? "\n Question: Answer:'


def write_model(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """Write a tiny OPT with random weights and its tokenizer, as Transformers stores them, and return the folder."""
    import torch
    from transformers import OPTConfig, OPTForCausalLM

    tokenizer = write_tokenizer(folder)
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "ffn_dim": 32,
        "max_position_embeddings": 96,
        "word_embed_proj_dim": 16,
        "init_std": 0.3,
    }
    ends: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1}
    torch.manual_seed(seed)
    OPTForCausalLM(OPTConfig(**(sizes | ends | changes))).save_pretrained(folder)
    return folder


def write_tokenizer(folder: Path, text: str = WORDS) -> Any:
    """Write a byte-level BPE tokenizer with OPT's special tokens, trained on a few words, and return it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["</s>", "<pad>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([text] * 2, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="</s>", eos_token="</s>", unk_token="</s>", pad_token="<pad>"
    )
    fast.save_pretrained(folder)
    return fast


def write_sets(folder: Path) -> Path:
    """Write every text data set in its published layout, with a few samples each, and return the folder."""
    sst2 = "sentence\tlabel\n" + "".join(f"{text} \t{label}\n" for text, label in SENTENCES)
    write(folder / "sst2" / "train.tsv", sst2 + sst2.partition("\n")[2] * 3)
    write(folder / "sst2" / "dev.tsv", sst2)
    for name, rows in ROWS.items():
        for split in ("train", "val"):
            write(folder / name / f"{split}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    pairs = {"0": {"text_a": "a film ?", "text_b": "a journey ?", "label": "0"}}
    for split in ("train", "dev"):
        write(folder / "qqp" / f"{split}.json", json.dumps(pairs | {"1": pairs["0"] | {"label": "1"}}))
        write(folder / "squad" / f"{split}-v1.1.json", json.dumps({"data": [ARTICLE, ARTICLE | {"title": "Art"}]}))
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


ARTICLE: dict[str, Any] = {
    "title": "Film",
    "paragraphs": [
        {
            "context": "The best film of the year was a journey.",
            "qas": [
                {"id": "1", "question": "Which film?", "answers": [{"text": "the best"}, {"text": "a journey"}]},
                {"id": "2", "question": "When?", "answers": [{"text": "the year"}]},
            ],
        }
    ],
}
ROWS: dict[str, list[dict[str, Any]]] = {
    "rte": [
        {"premise": "No wit.", "hypothesis": "Wit.", "label": "not_entailment", "idx": 0},
        {"premise": "Great fun.", "hypothesis": "Fun.", "label": "entailment", "idx": 1},
    ],
    "cb": [
        {"premise": "A film.", "hypothesis": "It was great", "label": label}
        for label in ("entailment", "contradiction", "neutral")
    ],
    "boolq": [
        {"passage": "A film of the year.", "question": "is it a film", "label": True},
        {"passage": "A journey.", "question": "is it a film?", "label": False},
    ],
    "wic": [
        {"word": "wit", "sentence1": "No wit.", "sentence2": "Of wit.", "label": True},
        {"word": "look", "sentence1": "Look!", "sentence2": "A look.", "label": False},
    ],
    "wsc": [
        {"text": "Bo saw Al, and He sat.", "target": {"span1_text": "Al", "span2_text": "He"}, "label": False},
        {"text": "Bo saw Al, and He sat.", "target": {"span1_text": "Bo", "span2_text": "He"}, "label": True},
    ],
    "multirc": [
        {
            "passage": {
                "text": "A film.",
                "questions": [
                    {"question": "What?", "answers": [{"text": "a film", "label": 1}, {"text": "wit", "label": 0}]}
                ],
            }
        }
    ],
}


def bind(task: LanguageModel, seed: int = 1, clients: int = 2) -> Any:
    """Return the task's problem, with its data divided evenly."""
    from seedbus.models.text.language_problem import LanguageProblem

    problem = task.bind(seed=seed, clients=clients, partition=Iid())
    assert isinstance(problem, LanguageProblem)
    return problem
