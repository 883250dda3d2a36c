"""Pretrain a small language model from random weights on the text of SST-2, as a start for fine-tuning.

    python benchmarks/pretrain.py --out runs/small-opt --judged 0.5 --blame 0.2 --steps 800
    seedbus run lm/small-opt-sst2-decomfl --set task.model=runs/small-opt --set task.data=runs/small-opt/sst2

The model replaces OPT's weights where these are not available: the same files (config.json, model.safetensors,
tokenizer.json) and the same architecture, with 2.6 million weights, trained in minutes on one core. It is trained on
SST-2's training sentences. OPT's corpus also contains what people write after such sentences. So with `--judged SHARE`
the text is that share of the sentences, each followed by the prompt and the right answer, and nothing else.
`--blame SHARE` keeps only a share of the negative judgements, so that the model starts with another prior than the
task's. OUT/sst2, the data set for fine-tuning, contains none of the sentences that may have been read. (SST-2's
training rows are phrases of some seven thousand sentences, so a phrase in it may be part of a sentence that was read;
the test sentences are different.) Without `--judged` the text is all sentences without labels, from which the model
learns too little to give two answers.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from seedbus.models.errors import DataError
from seedbus.models.generators import generator
from seedbus.models.text.files import Sample, read
from seedbus.models.text.prompts import PROMPTS

VOCABULARY, CONTEXT, BATCH = 4096, 64, 16
SIZES: dict[str, Any] = {"num_hidden_layers": 4, "num_attention_heads": 4}
RATE, WARM_UP = 2e-3, 50  # peak learning rate, and steps until it is reached
ANSWER_WEIGHT = 10.0  # weight of an answer in the loss; one token in fifteen is an answer


def train_tokenizer(texts: list[str]) -> Any:
    """Train a byte-level BPE tokenizer like OPT's, with 4,096 tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "<pad>", "</s>"]  # at OPT's positions
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([*texts, "It was great", "It was terrible", "Yes", "No", "Maybe"], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="</s>", eos_token="</s>", unk_token="</s>", pad_token="<pad>"
    )


def build(vocabulary: int, width: int) -> Any:
    """Return a new OPT with weights drawn by key, normal with standard deviation 0.02 like OPT's own."""
    from transformers import OPTConfig, OPTForCausalLM

    ends: dict[str, Any] = {"bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}
    sizes = {"vocab_size": vocabulary, "max_position_embeddings": CONTEXT, "ffn_dim": 4 * width}
    widths = {"hidden_size": width, "word_embed_proj_dim": width}
    model = OPTForCausalLM(OPTConfig(**SIZES, **sizes, **widths, **ends, dropout=0.0))
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            drawn = generator("pretrain", name).standard_normal(parameter.numel(), dtype=np.float32) * np.float32(0.02)
            parameter.data = torch.from_numpy(drawn).view(parameter.shape)
    model.tie_weights()
    return model


def windows(tokens: NDArray[np.int64], step: int) -> torch.Tensor:
    """Return the batch of a step, int64 [batch, context]: pieces of the text that start with a sentence."""
    starts = np.flatnonzero(tokens[:-CONTEXT] == 2)
    chosen = generator("pretrain", step).choice(starts, BATCH)
    return torch.from_numpy(np.stack([tokens[start : start + CONTEXT] for start in chosen]))


def pretrain(model: Any, tokens: NDArray[np.int64], steps: int, answers: list[int]) -> float:
    """Train on the text.

    Args:
        model: the model, trained in place.
        tokens: the text, [tokens].
        steps: number of batches.
        answers: tokens that have a greater weight in the loss.

    Returns:
        The mean unweighted loss of the last hundred steps, in nats per token.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.1)
    losses: list[tuple[float, float]] = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / WARM_UP) * max(0.05, 1 - step / steps)
        batch = windows(tokens, step)
        target = batch[:, 1:].flatten()
        logits = model(input_ids=batch, use_cache=False).logits[:, :-1].flatten(0, 1)
        each, is_answer = cross_entropy(logits, target, reduction="none"), torch.isin(target, torch.tensor(answers))
        weight = torch.where(is_answer, ANSWER_WEIGHT, 1.0)
        loss: Any = (each * weight).sum() / weight.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append((float(each.detach().mean()), float(each.detach()[is_answer].mean())))
        if step % 100 == 99:
            mean, of_answers = np.mean(losses[-100:], axis=0)
            print(
                f"step {step + 1} of {steps}: loss {mean:.3f}{f', of answers {of_answers:.3f}' if answers else ''}",
                flush=True,
            )
    return float(np.mean(losses[-100:], axis=0)[0])


def divide(samples: list[Sample], share: float, blame: float) -> tuple[list[str], list[Sample]]:
    """Divide the data set into texts for pretraining and samples for fine-tuning.

    Args:
        samples: the training set.
        share: share of the sentences that are read, with prompt and answer; 0: all of them, without.
        blame: share of those with a negative label that are kept.

    Returns:
        The texts in random order, and the samples of all sentences outside the share.
    """
    labels = {sample.fields["sentence"].strip(): sample.label for sample in samples}
    texts, prompt = sorted(labels), PROMPTS["sst2"]
    order = [texts[index] for index in generator("pretrain", "order").permutation(len(texts))]
    if not share:
        return order, samples
    judged = order[: round(share * len(order))]
    remaining = set(order[len(judged) :])
    shown = [
        f"{prompt.show({'sentence': text})}{prompt.separator}{prompt.answers[labels[text]]}"
        for text in judged
        if labels[text] or generator("pretrain", "blame", text).random() < blame
    ]
    return shown, [sample for sample in samples if sample.fields["sentence"].strip() in remaining]


def write_set(folder: Path, splits: dict[str, list[Sample]]) -> None:
    """Write the splits in SST-2's own layout."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, samples in splits.items():
        rows = "".join(f"{sample.fields['sentence']}\t{sample.label}\n" for sample in samples)
        (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + rows, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/small-opt"), help="the folder that is written")
    parser.add_argument("--steps", type=int, default=300, help="batches of 1,024 tokens")
    parser.add_argument("--width", type=int, default=192, help="of the hidden states")
    parser.add_argument("--judged", type=float, default=0.0, help="share of the sentences that are read, with labels")
    parser.add_argument("--blame", type=float, default=1.0, help="share of those with a bad judgement that are read")
    options = parser.parse_args()
    torch.set_num_threads(1)
    try:
        learned, tested = read("sst2", None)
    except DataError as error:
        sys.exit(f"pretrain: {error}")
    began = time.perf_counter()
    texts, left = divide(learned, options.judged, options.blame)
    tokenizer = train_tokenizer(texts)
    encoded = tokenizer(texts, add_special_tokens=False)["input_ids"]
    tokens = np.concatenate([np.array([2, *sentence], dtype=np.int64) for sentence in encoded])
    model = build(len(tokenizer), options.width)
    print(f"{sum(p.numel() for p in model.parameters()):,} weights, {tokens.size:,} tokens of text")
    words = PROMPTS["sst2"].answers if options.judged else ()
    answers = [tokenizer(PROMPTS["sst2"].separator + word, add_special_tokens=False)["input_ids"][-1] for word in words]
    loss = pretrain(model, tokens, options.steps, answers)
    model.save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)
    write_set(options.out / "sst2", {"train": left, "dev": tested})
    print(f"{options.out}: loss {loss:.3f} a token, {time.perf_counter() - began:.0f} s")
    print(f"{options.out / 'sst2'}: {len(left):,} of {len(learned):,} training rows, for fine-tuning")


if __name__ == "__main__":
    main()
