"""What a process needs to take part with a language model: copies of x, one layer at a time, or a gradient.

    python benchmarks/memory.py [--models small 125m]

Models are OPT's in shape, with random weights, and all of them are trained; batches are one short sentence, so that
activations are small. Every case has a process of its own, which first takes part with a tiny model: what it then
holds, Python, torch and compiled kernels, is the ground that is taken off. `round` is the highest resident set of one
round (two clients' local steps, a commit, a measurement) after a first one; `start` that of loading the model, making
the replica and the first round. `must` is the vectors that a round must have, 4 bytes a coordinate: the replica's
fields, and with light φ, the largest layer. Linux only: the highest resident set is reset through /proc.
"""

from __future__ import annotations

import argparse
import gc
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from rows import Row, Skip

SHAPES: dict[str, dict[str, int]] = {
    "tiny": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 4096},
    "small": {"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "vocab_size": 50_272},
    "125m": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 50_272},
}
POSITIONS = 2048
SENTENCES = ("a charming journey", "a terrible , tedious film", "the best film of the year", "no wit , only gags")
CLIENTS = (0, 1)


class Case(NamedTuple):
    """fields: vectors of a replica; copies: vectors of length d beside them, without `light` or for a gradient."""

    name: str
    algorithm: dict[str, Any]
    fields: int
    copies: int


DECOMFL: dict[str, Any] = {"name": "decomfl", "perturbations": 1}
CASES = [
    Case("DeComFL, K = 1", DECOMFL, 1, 2),
    Case("DeComFL, K = 2", DECOMFL | {"local_steps": 2}, 1, 3),
    Case("DeComFL, momentum, K = 2", DECOMFL | {"local_steps": 2, "momentum": 0.9}, 2, 4),
    Case("HiSo, K = 1", {"name": "hiso", "perturbations": 1}, 2, 3),
]
GRADIENT = Case("a gradient", DECOMFL, 1, 3)
ALL = [*((case, way) for case in CASES for way in ("copy", "light")), (GRADIENT, "gradient")]
AIM = 1.05  # times the vectors that must be there


class Figure(NamedTuple):
    """Bytes above the ground, at most; vectors: bytes of the vectors that must be there; and one round's seconds."""

    start: int
    round: int
    vectors: int
    seconds: float


def write(folder: Path, shape: dict[str, int]) -> None:
    """A model of that shape, its tokenizer, and a data set of a few sentences."""
    from pretrain import train_tokenizer
    from transformers import OPTConfig, OPTForCausalLM

    tokenizer = train_tokenizer([*SENTENCES, "It was great terrible"] * 2)
    tokenizer.save_pretrained(folder)
    width = shape["hidden_size"]
    sizes: dict[str, Any] = shape | {"ffn_dim": 4 * width, "word_embed_proj_dim": width}
    ends: dict[str, Any] = {"bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}
    OPTForCausalLM(OPTConfig(max_position_embeddings=POSITIONS, **sizes, **ends)).save_pretrained(folder)
    rows = "".join(f"{sentence} \t{label % 2}\n" for label, sentence in enumerate(SENTENCES))
    for split in ("train", "dev"):
        (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + rows, encoding="utf-8")


class Party:
    """One process's clients: a replica, which they share, and the model."""

    def __init__(self, folder: Path, case: Case, revert: str) -> None:
        from seedbus.models.language_model import LanguageModel
        from seedbus.models.partitions import Iid
        from seedbus.scenarios.discovery import algorithms

        made = {} if revert == "gradient" else {"revert": revert}
        described: Any = algorithms()[case.algorithm["name"]]
        self.algorithm = described.model_validate(case.algorithm | made)
        task = LanguageModel(model=str(folder), data=str(folder), batch_size=1, validation=0)
        self.problem: Any = task.bind(seed=0, clients=len(CLIENTS), partition=Iid())
        self.replica = self.algorithm.replica(self.problem.x0())
        self._is_gradient = revert == "gradient"

    def round(self, round: int) -> None:
        objectives = [self.problem.objective(client, round) for client in CLIENTS]
        if self._is_gradient:
            for objective in objectives:
                objective.point[:] = self.replica.x
                objective.gradient(0)
            return
        plan = self.algorithm.plan(round, round, 7 + round)
        found = self.algorithm.local_together(self.replica, [None] * len(CLIENTS), plan, objectives)
        reports = {client: report for client, (report, _) in zip(CLIENTS, found, strict=True)}
        self.algorithm.apply(self.replica, [self.algorithm.aggregate(None, plan, reports)[0]])
        self.problem.evaluate(self.replica.x, "test")


def measure(folder: Path, case: Case, revert: str) -> Figure:
    """One case, in a process that has done nothing else."""
    import torch

    torch.set_num_threads(1)
    Party(folder / "tiny", case, revert).round(0)
    gc.collect()
    ground = resident("VmRSS")
    forget_the_highest()
    party = Party(folder / "model", case, revert)
    party.round(0)
    start = resident("VmHWM") - ground
    gc.collect()
    forget_the_highest()
    begun = time.perf_counter()
    party.round(1)
    seconds = time.perf_counter() - begun
    trained = party.problem.trained
    largest = max(parameter.numel() for parameter in trained.module.parameters())
    beside = largest if revert == "light" else case.copies * trained.dimension
    vectors = 4 * (case.fields * trained.dimension + beside)
    return Figure(start, resident("VmHWM") - ground, vectors, seconds)


def resident(which: str) -> int:
    """Bytes of this process that are in memory: VmRSS now, VmHWM at most."""
    found = re.search(rf"^{which}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])


def forget_the_highest() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def alone(function: Any, *arguments: Any) -> Any:
    """What a function returns in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def figures(model: str, cases: Sequence[tuple[Case, str]]) -> Iterator[Figure]:
    """Of each case, in its order."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        alone(write, folder / "tiny", SHAPES["tiny"])
        alone(write, folder / "model", SHAPES[model])
        for case, revert in cases:
            yield alone(measure, folder, case, revert)


def rows(is_quick: bool) -> Iterator[Row | Skip]:
    """Megabytes above those of an idle process, beside those of a gradient: of the model of 46 million weights."""
    if find_spec("transformers") is None or not Path("/proc/self/clear_refs").exists():
        yield Skip("memory: transformers is not installed, or this is not Linux.")
        return
    cases = [(CASES[0], "copy"), (CASES[0], "light"), (CASES[3], "light")] if is_quick else ALL[:-1]
    backward, *found = figures("small", [(GRADIENT, "gradient"), *cases])
    for (case, revert), figure in zip(cases, found, strict=True):
        ours, plain, must = (size / 1e6 for size in (figure.round, backward.round, figure.vectors))
        name = f"memory: a round of {case.name}, {revert}"
        yield Row(name, "MB", ours, plain, "a gradient", must, "vectors it must have", "near", AIM)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=[name for name in SHAPES if name != "tiny"])
    models = parser.parse_args().models or ["small", "125m"]
    print("| model | | | round, MB | must, MB | ratio | start, MB | seconds |\n|---|---|---|---|---|---|---|---|")
    for model in models:
        for (case, revert), found in zip(ALL, figures(model, ALL), strict=True):
            share = found.round / found.vectors
            mega = [f"{part / 1e6:,.0f}" for part in (found.round, found.vectors, found.start)]
            cells = [model, case.name, revert, *mega[:2], f"{share:.2f}", mega[2], f"{found.seconds:.1f}"]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
