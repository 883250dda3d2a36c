"""A small language model, pretrained from nothing on the text of SST-2: a folder that fine-tuning starts from.

    python benchmarks/pretrain.py --out runs/small-opt --judged 0.5 --blame 0.2 --steps 800
    seedbus run lm/small-opt-sst2-decomfl --set task.model=runs/small-opt --set task.data=runs/small-opt/sst2

It stands in for OPT's weights where these cannot be had: the same files (config.json, model.safetensors,
tokenizer.json), the same architecture, 2.6 million weights, one core, minutes. It reads SST-2's training sentences.
OPT has also read what people write after such sentences; so with `--judged SHARE` this one reads that share of the
sentences, each followed by the prompt and the right answer, and nothing else. `--blame SHARE` has it read fewer of the
bad judgements, so that it begins with a prior that is not the task's. What it may have read is left out of OUT/sst2,
the data set for fine-tuning: nobody is taught by a sentence that the start has seen. (SST-2's training rows are phrases
of some seven thousand sentences, so a phrase that is left may be part of one that was read; the test sentences are
others.) Without `--judged` it reads all the sentences, without labels, and learns too little to give two answers.
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
from seedbus.models.streams import stream
from seedbus.models.text.files import Sample, read
from seedbus.models.text.prompts import PROMPTS

VOCABULARY, CONTEXT, BATCH = 4096, 64, 16
SIZES: dict[str, Any] = {"num_hidden_layers": 4, "num_attention_heads": 4}
RATE, WARM_UP = 2e-3, 50  # the rate's peak, and in how many steps it is reached
ANSWER_WEIGHT = 10.0  # an answer is one token in fifteen, and what the others are for


def train_tokenizer(texts: list[str]) -> Any:
    """A byte-level BPE as OPT has, of 4,096 tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "<pad>", "</s>"]  # where OPT has them
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([*texts, "It was great", "It was terrible", "Yes", "No", "Maybe"], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="</s>", eos_token="</s>", unk_token="</s>", pad_token="<pad>"
    )


def build(vocabulary: int, width: int) -> Any:
    """A new OPT whose weights are drawn by key, normal with deviation 0.02 as OPT's own."""
    from transformers import OPTConfig, OPTForCausalLM

    ends: dict[str, Any] = {"bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}
    sizes = {"vocab_size": vocabulary, "max_position_embeddings": CONTEXT, "ffn_dim": 4 * width}
    widths = {"hidden_size": width, "word_embed_proj_dim": width}
    model = OPTForCausalLM(OPTConfig(**SIZES, **sizes, **widths, **ends, dropout=0.0))
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            drawn = stream("pretrain", name).standard_normal(parameter.numel(), dtype=np.float32) * np.float32(0.02)
            parameter.data = torch.from_numpy(drawn).view(parameter.shape)
    model.tie_weights()
    return model


def windows(tokens: NDArray[np.int64], step: int) -> torch.Tensor:
    """The batch of a step, int64 [batch, context]: stretches of the text, each from the beginning of a sentence."""
    begins = np.flatnonzero(tokens[:-CONTEXT] == 2)
    chosen = stream("pretrain", step).choice(begins, BATCH)
    return torch.from_numpy(np.stack([tokens[begin : begin + CONTEXT] for begin in chosen]))


def pretrain(model: Any, tokens: NDArray[np.int64], steps: int, answers: list[int]) -> float:
    """Train on the text; answers: tokens that weigh more. Returns the last hundred steps' mean loss, nats a token, in
    which all weigh the same."""
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
            every, known = np.mean(losses[-100:], axis=0)
            print(
                f"step {step + 1} of {steps}: loss {every:.3f}{f', of answers {known:.3f}' if answers else ''}",
                flush=True,
            )
    return float(np.mean(losses[-100:], axis=0)[0])


def divide(samples: list[Sample], share: float, blame: float) -> tuple[list[str], list[Sample]]:
    """The texts to read, in their order: of a share of the sentences, with prompt and answer, but of those that blame
    only so many; and the samples of the sentences that are not in that share."""
    labels = {sample.fields["sentence"].strip(): sample.label for sample in samples}
    texts, prompt = sorted(labels), PROMPTS["sst2"]
    order = [texts[index] for index in stream("pretrain", "order").permutation(len(texts))]
    if not share:
        return order, samples
    judged = order[: round(share * len(order))]
    left = set(order[len(judged) :])
    shown = [
        f"{prompt.show({'sentence': text})}{prompt.separator}{prompt.answers[labels[text]]}"
        for text in judged
        if labels[text] or stream("pretrain", "blame", text).random() < blame
    ]
    return shown, [sample for sample in samples if sample.fields["sentence"].strip() in left]


def write_set(folder: Path, splits: dict[str, list[Sample]]) -> None:
    """SST-2's own layout."""
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
