"""The memory of a client process with a language model: with copies of x, one layer at a time, or with a gradient.

    python benchmarks/memory.py [--models small 125m] [--batch-size 32]
    python benchmarks/memory.py --large [--models 125m]

Models have OPT's architecture and random weights, all of which are trained. A batch is one short sentence, so that
activations are small, or `--batch-size` sentences of 44 tokens. Every case runs in a process of its own, which first
does a round with a tiny model. The memory that it then has (Python, torch and compiled kernels) is the base, which is
subtracted. `round` is the peak resident set of one round (two clients' local steps, a commit, an evaluation) after a
first one. `start` is the peak of loading the model, making the replica and the first round. `must` is the size of the
vectors that a round needs, 4 bytes a coordinate (x in bfloat16: 2): the replica's fields and copies of x, or with
`light` the fields and the largest layer. Linux only: the peak of the resident set is reset through /proc.

`--large` measures what large models need: `revert: light` on NumPy's arrays and on tensors (`--device torch`), with a
forward pass in bfloat16, and LoRA on weights that are frozen in 16 and in 4 bits. There `must` has the frozen weights
as they are stored, too, and the largest layer as float32.

For comparison, one client of the same model as in public code: DeComFL and HiSo of `plain.py`, which perturb x in place
by a z of its length, and torch's own gradient with SGD and with Adam.
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
from typing import Any, NamedTuple, cast

from rows import Row, Skip

SHAPES: dict[str, dict[str, int]] = {
    "tiny": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 4096},
    "17m": {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 50_272},
    "small": {"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "vocab_size": 50_272},
    "73m": {"hidden_size": 640, "num_hidden_layers": 8, "num_attention_heads": 10, "vocab_size": 50_272},
    "125m": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 50_272},
}
POSITIONS = 2048
LONG = 20  # words of a long sentence before its last, of two tokens each
SENTENCES = ("a charming journey", "a terrible , tedious film", "the best film of the year", "no wit , only gags")
CLIENTS = (0, 1)


class Case(NamedTuple):
    """One configuration.

    Attributes:
        name: its name in the table.
        algorithm: fields of the algorithm.
        fields: vectors of a replica.
        copies: further vectors of length d, without `light` or for a gradient.
        task: fields of the task.
        device: where the process computes.
    """

    name: str
    algorithm: dict[str, Any]
    fields: int
    copies: int
    task: dict[str, Any] = {}  # noqa: RUF012  # never written to
    device: str = "cpu"


DECOMFL: dict[str, Any] = {"name": "decomfl", "perturbations": 1}
CASES = [
    Case("DeComFL, K = 1", DECOMFL, 1, 2),
    Case("DeComFL, K = 2", DECOMFL | {"local_steps": 2}, 1, 3),
    Case("DeComFL, momentum, K = 2", DECOMFL | {"local_steps": 2, "momentum": 0.9}, 2, 4),
    Case("HiSo, K = 1", {"name": "hiso", "perturbations": 1}, 2, 3),
]
HALF = DECOMFL | {"arithmetic": "bfloat16"}
LORA: dict[str, Any] = {"train": {"kind": "lora"}}
LARGE = [
    Case("float32", DECOMFL, 1, 2),
    Case("float32, tensors", DECOMFL, 1, 2, device="torch"),
    Case("bfloat16 x", HALF, 1, 2),
    Case("bfloat16 x, tensors", HALF, 1, 2, device="torch"),
    Case("bfloat16 forward", DECOMFL, 1, 2, {"compute_dtype": "bfloat16"}),
    Case("bfloat16 forward, tensors", DECOMFL, 1, 2, {"compute_dtype": "bfloat16"}, "torch"),
    Case("LoRA, bfloat16 frozen", DECOMFL, 1, 2, LORA | {"dtype": "bfloat16"}),
    Case("LoRA, int8 frozen", DECOMFL, 1, 2, LORA | {"dtype": "int8"}),
    Case("LoRA, nf4 frozen", DECOMFL, 1, 2, LORA | {"dtype": "nf4"}),
]
GRADIENT = Case("a gradient", DECOMFL, 1, 3)
AIM = 1.05  # times the vectors that a round needs
PLAIN = {  # by name in the table
    "DeComFL": Case("plain", {}, 1, 2),
    "HiSo": Case("plain", {"nu": 0.05}, 2, 5),
    "SGD": Case("plain", {}, 1, 1),
    "Adam": Case("plain", {}, 1, 3),
}


class Figure(NamedTuple):
    """The memory of one case, and the time of a round.

    Attributes:
        start: peak bytes above the base until the first round ends.
        round: peak bytes above the base in the second round.
        vectors: bytes of the vectors that a round needs.
        seconds: duration of the second round.
    """

    start: int
    round: int
    vectors: int
    seconds: float


def write(folder: Path, shape: dict[str, int], size: int) -> None:
    """Write a model of a shape, its tokenizer, and a data set of a few sentences, or of batches of a size.

    A shape has fields of `OPTConfig`.
    """
    from pretrain import train_tokenizer
    from transformers import OPTConfig, OPTForCausalLM

    tokenizer = train_tokenizer([*SENTENCES, "It was great terrible"] * 2)
    sentences = SENTENCES if size == 1 else [long_sentence(number) for number in range(2 * size)]
    tokenizer.save_pretrained(folder)
    width = shape["hidden_size"]
    sizes: dict[str, Any] = {"max_position_embeddings": POSITIONS, "ffn_dim": 4 * width, "word_embed_proj_dim": width}
    ends: dict[str, Any] = {"bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}
    OPTForCausalLM(OPTConfig(**(sizes | shape), **ends)).save_pretrained(folder, max_shard_size="100GB")
    for split, texts in (("train", sentences), ("dev", SENTENCES)):
        rows = "".join(f"{text} \t{number % 2}\n" for number, text in enumerate(texts))
        (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + rows, encoding="utf-8")


def long_sentence(number: int) -> str:
    """Return a sentence like no other number's, since equal rows of a batch are computed once."""
    return " ".join(["ab"[number >> bit & 1] for bit in range(LONG)] + ["film"])


class Party:
    """The clients of one process: the model, and a replica that they share."""

    def __init__(self, folder: Path, case: Case, revert: str, size: int) -> None:
        from seedbus.models import Iid
        from seedbus.models.device import on_device, placed_beside
        from seedbus.models.tasks.language_model import LanguageModel
        from seedbus.scenarios.schema.discovery import ALGORITHMS

        made = {} if revert == "gradient" else {"revert": revert}
        chosen: Any = ALGORITHMS.all()[case.algorithm["name"]]
        self.algorithm = chosen.model_validate(case.algorithm | made)
        described = {"model": str(folder), "data": str(folder), "batch_size": size, "validation": 0} | case.task
        with on_device(case.device):
            task = LanguageModel.model_validate(described)
            self.problem: Any = task.bind(seed=0, clients=len(CLIENTS), partition=Iid())
        self.replica = self.algorithm.replica(placed_beside(self.problem)(self.problem.x0()))
        self._is_gradient = revert == "gradient"

    def round(self, round: int) -> None:
        from seedbus.agents.client.evaluator import measured

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
        measured(self.algorithm, self.problem, self.replica, None, "test")

    @property
    def module(self) -> Any:
        return self.problem.trained.module


class Answering:
    """A language model with the interface of `plain`: tokens [b, width] in, logits [b, vocabulary] of the next out."""

    def __init__(self, model: Any) -> None:
        self.parameters = model.parameters
        self._model = model

    def __call__(self, ids: Any) -> Any:
        return self._model.lm_head(self._model.model.decoder(input_ids=ids, use_cache=False).last_hidden_state[:, -1])


class Plain:
    """One client in plain torch code, which either perturbs x in place or uses a gradient and an optimizer."""

    def __init__(self, folder: Path, case: Case, way: str, size: int) -> None:
        import torch
        from plain import Batch, Follower, Recipe, borrow, flat
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.module: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.network = cast(Any, Answering(self.module))
        sentence = SENTENCES[0] if size == 1 else long_sentence(0)
        ids = torch.tensor([AutoTokenizer.from_pretrained(folder)(f"{sentence} It was")["input_ids"]] * size)
        self.batch = Batch(ids, torch.full((size,), 7))
        self.log: list[Any] = []
        kind: Any = {"SGD": torch.optim.SGD, "Adam": torch.optim.Adam}.get(way)
        self.optimizer: Any = kind and kind(self.module.parameters(), lr=1e-5)
        if kind is None:
            self.follower = Follower(flat(self.network), Recipe(1e-5, **case.algorithm))
            borrow(self.network, self.follower.x)

    def round(self, round: int) -> None:
        from plain import federated_round
        from torch.nn.functional import cross_entropy

        if self.optimizer is None:
            federated_round(self.network, [self.follower], {0: [self.batch]}, self.log, round, 1)
            self.follower.catch_up(self.log)
            return
        loss: Any = cross_entropy(self.network(self.batch.images), self.batch.labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def measure(folder: Path, case: Case, way: str, size: int) -> Figure:
    """Measure one case, in a process that has done nothing else."""
    import torch

    torch.set_num_threads(1)
    kind: Any = Plain if way in PLAIN else Party
    kind(folder / "tiny", case, way, size).round(0)
    gc.collect()
    ground = resident("VmRSS")
    forget_the_highest()
    party = kind(folder / "model", case, way, size)
    party.round(0)
    start = resident("VmHWM") - ground
    gc.collect()
    forget_the_highest()
    begun = time.perf_counter()
    party.round(1)
    seconds = time.perf_counter() - begun
    trained = [p.numel() for p in party.module.parameters() if p.requires_grad]
    frozen = [p for p in [*party.module.parameters(), *party.module.buffers()] if not p.requires_grad]
    beside = max([*trained, *(p.numel() for p in frozen)]) if way == "light" else case.copies * sum(trained)
    stored = sum(p.numel() * p.element_size() for p in frozen)
    widths = 4 * case.fields - 2 * (case.algorithm.get("arithmetic") == "bfloat16")
    vectors = widths * sum(trained) + 4 * beside + stored
    return Figure(start, resident("VmHWM") - ground, vectors, seconds)


def resident(which: str) -> int:
    """Return the resident bytes of this process: `VmRSS` now, `VmHWM` the peak."""
    found = re.search(rf"^{which}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])


def forget_the_highest() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def alone(function: Any, *arguments: Any) -> Any:
    """Call a function in a new process and return its result."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def cases(size: int) -> list[tuple[Case, str]]:
    """Return all (case, way); with batches of more than one sentence only K = 1."""
    zeroth = [case for case in CASES if size == 1 or case.name.endswith("K = 1")]
    plain = [(case, way) for way, case in PLAIN.items()]
    return [*((case, way) for case in zeroth for way in ("copy", "light")), (GRADIENT, "gradient"), *plain]


def figures(model: str, cases: Sequence[tuple[Case, str]], size: int = 1) -> Iterator[Figure]:
    """Yield the figures of each case, in order; `size` is the number of sentences in a batch."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        alone(write, folder / "tiny", SHAPES["tiny"], size)
        alone(write, folder / "model", SHAPES[model], size)
        for case, way in cases:
            yield alone(measure, folder, case, way, size)


def rows(is_quick: bool) -> Iterator[Row | Skip]:
    """Measure megabytes above an idle process, compared with a gradient's, for the model of 46 million weights."""
    if find_spec("transformers") is None or not Path("/proc/self/clear_refs").exists():
        yield Skip("memory: transformers is not installed, or this is not Linux.")
        return
    both = [(case, way) for case in CASES for way in ("copy", "light")]
    measured = [(CASES[0], "copy"), (CASES[0], "light"), (CASES[3], "light")] if is_quick else both
    backward, *found = figures("small", [(GRADIENT, "gradient"), *measured])
    for (case, way), figure in zip(measured, found, strict=True):
        ours, plain, must = (size / 1e6 for size in (figure.round, backward.round, figure.vectors))
        name = f"memory: a round of {case.name}, {way}"
        yield Row(name, "MB", ours, plain, "a gradient", must, "vectors it must have", "near", AIM)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models = [name for name in SHAPES if name != "tiny"]
    parser.add_argument("--models", nargs="+", choices=models, default=["small", "125m"])
    parser.add_argument("--batch-size", type=int, default=1, help="more than 1: sequences of 44 tokens")
    parser.add_argument("--large", action="store_true", help="what large models need, layer by layer")
    options = parser.parse_args()
    print("| model | | | round, MB | must, MB | ratio | start, MB | seconds |\n|---|---|---|---|---|---|---|---|")
    for model in options.models:
        large = [(case, "light") for case in LARGE]
        measured = large if options.large else cases(options.batch_size)
        for (case, way), found in zip(measured, figures(model, measured, options.batch_size), strict=True):
            share = found.round / found.vectors
            mega = [f"{part / 1e6:,.0f}" for part in (found.round, found.vectors, found.start)]
            cells = [model, case.name, way, *mega[:2], f"{share:.2f}", mega[2], f"{found.seconds:.1f}"]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
