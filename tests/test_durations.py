"""The lines in scenario files that say how long they take: each file has both, and each line says how it was found."""

from __future__ import annotations

import re
from typing import Any

import pytest
import study_durations
from durations import OPT, RESNET, TOKENS, about, lines, names, path_of, power, with_lines

from seedbus.scenarios.schema.loading import load, studies


def test_the_lines_are_those_of_durations_py_for_the_scenarios_as_they_are() -> None:
    for name in names():
        text = path_of(name).read_text(encoding="utf-8")
        assert with_lines(text, lines(name)) == text, f"{name}: python benchmarks/durations.py --write"


@pytest.mark.slow
def test_every_study_of_a_figure_says_what_it_takes_and_how_that_was_found() -> None:
    how = {
        "CPU": r"about [\d.]+ \w+, (measured, \d+ runs on|foreseen from .*) one core of an .*",
        "GPU": r"about [\d.]+ \w+, an estimate from .*; not run|needs none, for there is no network",
    }
    assert len(studies()) > 30
    for name in studies():
        new = study_durations.lines(name)
        text = path_of(name).read_text(encoding="utf-8")
        assert with_lines(text, new) == text, f"{name}: python benchmarks/study_durations.py --write"
        for processor, line in zip(("CPU", "GPU"), new, strict=True):
            assert re.match(rf"# {processor}: ({how[processor]})", line) and len(line) <= 120, line


def test_old_lines_are_replaced_and_nothing_else_is_changed() -> None:
    text = "# A paper.\n# CPU: old\n# GPU: old\nname: a\ndescription: a name: b\n"
    assert with_lines(text, ["# CPU: new"]) == "# A paper.\n# CPU: new\nname: a\ndescription: a name: b\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.04, "4 seconds"), (99, "99 seconds"), (3600, "60 minutes"), (7200, "2 hours"), (1.3e7, "150 days")],
)
def test_durations_have_two_digits(seconds: float, text: str) -> None:
    assert about(seconds) == f"about {text}" and power(7.1e16) == "7·10¹⁶"


@pytest.mark.slow
def test_the_operations_of_a_forward_pass_are_those_that_torch_counts() -> None:
    torch: Any = pytest.importorskip("torch")
    transformers: Any = pytest.importorskip("transformers")
    from torch.utils.flop_counter import FlopCounterMode

    from seedbus.models.images.resnet import resnet18

    layers = OPT["opt-125m"]
    with torch.device("meta"), torch.inference_mode():
        sizes = {"hidden_size": layers.width, "word_embed_proj_dim": layers.width, "ffn_dim": 4 * layers.width}
        config = transformers.OPTConfig(num_hidden_layers=layers.depth, num_attention_heads=12, **sizes)
        model = transformers.OPTModel(config).eval()
        for tokens in (TOKENS["sst2"], TOKENS["boolq"]):
            with FlopCounterMode(display=False) as counter:
                model(input_ids=torch.ones(2, tokens, dtype=torch.long), use_cache=False)
            assert counter.get_total_flops() == pytest.approx(2 * layers.network(tokens).flops, rel=0.05)
        with FlopCounterMode(display=False) as counter:
            resnet18(10)(torch.zeros(50, 3, 32, 32))
    assert counter.get_total_flops() == pytest.approx(50 * RESNET.flops, rel=1e-9)


def test_the_widths_of_opt_are_those_of_its_models() -> None:
    """A scenario's d, without embeddings, positions, biases and norms, is that of the layers."""
    for name, layers in OPT.items():
        dimension = load(f"lm/{name}-sst2-decomfl").dimension
        embedded = 512 if name == "opt-350m" else layers.width
        around = 50_272 * embedded + 2_050 * layers.width
        assert 12 * layers.depth * layers.width**2 == pytest.approx(dimension - around, rel=0.01)
