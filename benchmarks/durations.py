"""How long the library's larger scenarios take, on a processor and on a GPU: the two lines at the head of their files.

    python benchmarks/durations.py              # the lines of every file
    python benchmarks/durations.py --write      # puts them into the files
    python benchmarks/durations.py --rates      # measures what one core of this machine does

No scenario was run to its end on a GPU, and each line says how it was found.

*Foreseen by `seedbus explain`*: on one core of an AMD EPYC (Genoa, AVX-512; load 12 to 22 from other work, which its
processor time hardly counts), with samples of the data sets. The small OPT had random weights, which take as long. The
scenarios on it follow from DeComFL's, 32 s and 0.091 s a forward pass, and from FedZO's where models are sent, 48 s
more. Those on MiniLM, whose rounds cost little once each sentence is encoded, are taken to last as long as the run of
DeComFL's did there, to its end, with random weights of MiniLM's shape: 39 s, and 7 s to start.

*From FLOPs*: two floating-point operations a weight of the layers and token, and four times the width a layer and pair
of tokens, for each forward pass of a loss or of an evaluation; heads, embeddings and loading are left out. Directions
are drawn three times a round: for the points, by the clients' replica and by the evaluator's. `CPU` and `GPU` below are
the rates. The CPU's are what `--rates` measured on that EPYC (79 to 86 GFLOP/s for OPT's layers, 94 to 105 for
ResNet-18, 0.6 to 1.5·10⁹ coordinates of directions, in two runs). The GPU's are those of an NVIDIA H200 in float32
without TF32, by the tables of `gpu.py` (README.md): 13 TFLOP/s for OPT-125M, 14 for ResNet-18, 20 for OPT-350M, and
750·10⁹ coordinates. Assumed are no less than the launches of all passes at 10 µs each, and 20 s to start where that
matters; the MNIST CNN took 160 µs a pass there.

A row's tokens are those of the longest of a batch of 32, prompt and answer included: 1.3 a word, with words counted in
the training files of SST-2, RTE and QQP, and assumed for the other sets. SQuAD's generated answers are not counted.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seedbus.scenarios.schema.loading import load

LIBRARY = Path(__file__).resolve().parent.parent / "scenarios" / "library"
TOKENS = {"sst2": 45, "rte": 200, "qqp": 95, "squad": 420, "cb": 220, "boolq": 360, "wic": 75, "wsc": 85}
LAUNCH_S, GPU_START_S = 10e-6, 20.0
EPYC = "one core of an AMD EPYC"


class Rates(NamedTuple):
    """What a processor does in a second.

    Attributes:
        flops: floating-point operations of forward passes.
        coordinates: of directions.
    """

    flops: float
    coordinates: float


CPU, GPU = Rates(80e9, 1e9), Rates(13e12, 750e9)


class Network(NamedTuple):
    """The cost of a forward pass.

    Attributes:
        flops: floating-point operations of a sample.
        launches: kernels that a GPU starts for a batch, about.
    """

    flops: float
    launches: int


class Layers(NamedTuple):
    """A transformer's layers."""

    depth: int
    width: int

    def network(self, tokens: int) -> Network:
        weights = 12 * self.depth * self.width**2
        return Network(2 * weights * tokens + 4 * self.depth * self.width * tokens**2, 20 * self.depth)


OPT = {
    "opt-125m": Layers(12, 768),
    "opt-350m": Layers(24, 1024),
    "opt-1.3b": Layers(24, 2048),
    "opt-2.7b": Layers(32, 2560),
}
RESNET = Network(55_542_272_000 / 50, 70)  # torch's FlopCounterMode, 50 images


class Known(NamedTuple):
    """What `seedbus explain` or a run showed of a scenario, in processor seconds.

    Attributes:
        fixed: of all but forward passes.
        a_pass: of a forward pass, with its share of messages and directions.
        launches: kernels that a GPU starts for a pass, about.
        how: how these were found.
    """

    fixed: float
    a_pass: float
    launches: int
    how: str


KNOWN = {  # by how a name begins; the first that fits
    "femnist": Known(15, 0, 10, "foreseen by `seedbus explain`"),
    "shakespeare": Known(85, 0, 400, "foreseen by `seedbus explain`"),
    "lm/small-opt-sst2-fed": Known(80, 0.091, 80, "foreseen from `seedbus explain lm/small-opt-sst2-fedzo`"),
    "lm/small-opt": Known(32, 0.091, 80, "foreseen from `seedbus explain lm/small-opt-sst2-decomfl`"),
    "lm/smollm2": Known(130, 0.0125, 8, "foreseen from a run of lm/smollm2-sst2-decomfl with 11 rounds"),
    "lm/minilm": Known(46, 0, 4, "foreseen from a run of lm/minilm-sst2-decomfl"),
}


def names() -> list[str]:
    """Return the names of the scenarios whose files have the two lines."""
    language = sorted(f"lm/{path.stem}" for path in (LIBRARY / "lm").glob("*.yaml"))
    return ["decomfl-cifar10", "femnist", "shakespeare", *language]


def lines(name: str) -> list[str]:
    """Return the two lines of a scenario's file."""
    scenario: Any = load(name)
    rounds, cohort = scenario.stop.rounds, scenario.participation.size
    passes = sum(cohort * scenario.algorithm.work(round).evaluations for round in range(rounds))
    known = next((known for start, known in KNOWN.items() if name.startswith(start)), None)
    if known is not None:
        there = GPU_START_S + passes * known.launches * LAUNCH_S
        return [
            f"# CPU: {about(known.fixed + passes * known.a_pass)}, {known.how}, {EPYC}.",
            f"# GPU: {about(there)}, an estimate: {passes:,} forward passes of {known.launches} launches at 10 µs, and "
            f"{GPU_START_S:.0f} s to start; not run.",
        ]
    task = scenario.task
    layers = OPT.get("-".join(name.removeprefix("lm/").split("-")[:2]))
    network = RESNET if layers is None else layers.network(TOKENS[task.dataset])
    measured = 10_000 if layers is None else task.evaluated
    evaluations = rounds // scenario.evaluation.every + 1
    flops = network.flops * (passes * task.batch_size + evaluations * measured)
    drawn = 3 * rounds * scenario.algorithm.work(0).scalars * scenario.dimension
    here, there = (flops / rates.flops + drawn / rates.coordinates for rates in (CPU, GPU))
    there = max(there, passes * network.launches * LAUNCH_S)
    return [
        f"# CPU: {about(here)}, foreseen from FLOPs ({power(flops)} at 80 GFLOP/s, {EPYC}); not run.",
        f"# GPU: {about(there)}, an estimate from the same FLOPs at 13 TFLOP/s, OPT-125M's on an H200; not run.",
    ]


def about(seconds: float) -> str:
    """Return a duration with two digits."""
    units = (("seconds", 1, 100), ("minutes", 60, 100), ("hours", 3600, 48), ("days", 86_400, 1e9))
    unit, size = next((unit, size) for unit, size, most in units if seconds < most * size)
    return f"about {float(f'{seconds / size:.2g}'):g} {unit}"


def power(value: float) -> str:
    """Return a number as one digit and a power of ten."""
    digits, _, exponent = f"{value:.0e}".partition("e+")
    return f"{digits}·10{exponent.translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def path_of(name: str) -> Path:
    return LIBRARY / f"{name}.yaml"


def with_lines(text: str, new: list[str]) -> str:
    """Return a file's text with these two lines before its name or description, in the place of others."""
    text = re.sub(r"^# (CPU|GPU): .*\n", "", text, flags=re.MULTILINE)
    head, first, rest = re.split(r"^(name: |description: )", text, maxsplit=1, flags=re.MULTILINE)
    return "".join([head, *(f"{line}\n" for line in new), first, rest])


def show(new: Mapping[str, list[str]], *, writes: bool) -> None:
    """Print the lines of files, by name, and put them into the files if asked."""
    for name, pair in new.items():
        print(name, *pair, sep="\n", end="\n\n")
        if writes:
            path = path_of(name)
            path.write_text(with_lines(path.read_text(encoding="utf-8"), pair), encoding="utf-8")


def measure_rates() -> None:
    """Print what one core of this machine does in a second."""
    import numpy as np
    import torch
    from transformers import OPTConfig, OPTModel

    from seedbus.algorithms.directions import directions, set_threads
    from seedbus.models.images.resnet import resnet18
    from seedbus.versions import processor

    torch.set_num_threads(1)
    set_threads(1)
    layers = Layers(4, 768)
    sizes = {"hidden_size": 768, "word_embed_proj_dim": 768, "ffn_dim": 3072, "num_attention_heads": 12}
    model = OPTModel(OPTConfig(num_hidden_layers=4, vocab_size=1000, **sizes)).eval()
    resnet, images = resnet18(10).eval(), torch.zeros(50, 3, 32, 32).to(memory_format=torch.channels_last)
    print(processor())
    with torch.inference_mode():
        for tokens in (45, 200):
            ids = torch.full((32, tokens), 5)
            spent = best(lambda ids=ids: model(input_ids=ids, use_cache=False))  # type: ignore[misc]
            print(f"OPT's layers, {tokens} tokens: {32 * layers.network(tokens).flops / spent / 1e9:.0f} GFLOP/s")
        print(f"ResNet-18: {50 * RESNET.flops / best(lambda: resnet(images)) / 1e9:.0f} GFLOP/s")
    x, source = np.zeros(1 << 22, np.float32), directions("gaussian")
    point, scalars = x.copy(), np.linspace(-1, 1, 10).astype(np.float32)
    summed = best(lambda: source.accumulate(x, scalars, seed=7, step=0))
    perturbed = best(lambda: source.perturb(point, x, 1e-3, seed=7, step=0, perturbation=0))
    print(f"directions: {10 * x.size / summed / 1e9:.2f} and {x.size / perturbed / 1e9:.2f}·10⁹ coordinates/s")


def best(work: Callable[[], Any]) -> float:
    """Return the processor seconds of the best of three calls, after one that does not count."""
    work()
    spent = []
    for _ in range(3):
        began = time.thread_time()
        work()
        spent.append(time.thread_time() - began)
    return min(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the lines into the files")
    parser.add_argument("--rates", action="store_true", help="measure this machine instead")
    asked = parser.parse_args()
    if asked.rates:
        return measure_rates()
    return show({name: lines(name) for name in names()}, writes=asked.write)


if __name__ == "__main__":
    main()
