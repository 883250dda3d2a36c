"""Language models of which the last blocks are trained: what is kept, and that it changes no loss."""

from __future__ import annotations

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_language import bind
from test_language_families import FAMILIES, write_family
from worlds import HISO, outcome

from seedbus.models import DataError
from seedbus.models.tasks.language_model import LanguageModel
from seedbus.models.text import states_file
from seedbus.models.text.last_blocks import KeptStates
from seedbus.models.text.states_file import StatesFile
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.transports.placement import Placement

LAST = {"train": {"kind": "last-blocks"}}

pytestmark = [pytest.mark.usefixtures("one_thread", "opt", "own_cache"), pytest.mark.slow]


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other test has computed the states of a text."""
    monkeypatch.setenv("SEEDBUS_CACHE", str(tmp_path))


def calls_of_block(problem: Any, number: int) -> list[int]:
    """Return a list that grows by one with every forward pass of a block: by the tokens of that pass."""
    counted: list[int] = []
    model = problem.network._model
    named = dict(model.named_modules())
    name = next(name for name in named if name.endswith((f".{number}.self_attn", f".{number}.attn")))
    named[name].register_forward_hook(lambda _, args, kwargs, out: counted.append(1), with_kwargs=True)
    return counted


def whole_and_last(fields: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return the problem with all weights trained and that of the last block, both at its weights moved a little."""
    full, last = (bind(LanguageModel.model_validate(fields | more)) for more in ({}, LAST))
    x = last.x0() * np.float32(1.01)
    last.point[:] = x
    tensors = last.state_dict(x)
    start, whole = 0, full.x0()
    for name, parameter in full.trained._named:
        if name in tensors:
            whole[start : start + parameter.numel()] = tensors[name].reshape(-1)
        start += parameter.numel()
    full.point[:] = whole
    return full, last, x


@pytest.mark.parametrize("name", FAMILIES)
def test_losses_and_gradients_are_those_of_the_whole_model(tmp_path: Path, texts: Path, name: str) -> None:
    folder = write_family(tmp_path, name)
    fields = {"model": str(folder), "data": str(texts / "sst2"), "validation": 0, "batch_size": 4}
    full, last, x = whole_and_last(fields)
    theirs, ours = full.objective(0, 0), last.objective(0, 0)
    assert ours.loss(0) == pytest.approx(theirs.loss(0), rel=2e-7)
    gradient, expected = ours.gradient(0).copy(), full.trained.views(torch.from_numpy(theirs.gradient(0)))
    named = dict(zip((name for name, _ in full.trained._named), expected, strict=True))
    wanted = np.concatenate([named[name].reshape(-1).numpy() for name, _ in last.trained._named])
    assert np.linalg.norm(gradient - wanted) < 1e-5 * np.linalg.norm(wanted)
    measured, whole = last.evaluate(x, "test"), full.evaluate(np.array(full.point), "test")
    assert measured["loss"] == pytest.approx(whole["loss"], rel=2e-7) and measured["accuracy"] == whole["accuracy"]
    light = bind(LanguageModel.model_validate(fields | LAST))
    assert light.objective(0, 0).loss_at(0, lambda span, out: np.copyto(out, x[span])) == ours.loss(0)
    assert light.evaluate_at(lambda span, out: np.copyto(out, x[span]), "test") == measured


def test_answers_are_generated_by_the_whole_model(make: Any) -> None:
    full, last, x = whole_and_last(make("squad").model_dump())
    assert last.evaluate(x, "test") == pytest.approx(full.evaluate(np.array(full.point), "test"), rel=2e-7)


def test_the_blocks_before_compute_each_text_once(make: Any) -> None:
    problem = bind(make(validation=0, batch_size=4, **LAST))
    problem.point[:] = problem.x0()
    objective = problem.objective(0, 0)
    before, within = calls_of_block(problem, 0), calls_of_block(problem, 1)
    losses = [objective.loss(0), objective.loss(0)]
    texts, passes = len(before), len(within)
    assert 1 <= texts <= 4 and passes == 2 and losses[0] == losses[1]
    problem.evaluate(problem.x0(), "test")
    seen = len(before)
    assert seen > texts, "the test's texts are others"
    problem.evaluate(problem.x0(), "test")
    objective.gradient(0)
    assert len(before) == seen and len(within) > passes


def test_what_is_kept_has_the_bits_of_what_is_computed_anew(make: Any) -> None:
    """In other batches and with other padding, too: the states of a text are those of the text alone."""
    kept, anew = (bind(make(validation=0, train=LAST["train"] | {"kept_mb": most})) for most in (64, 0))
    ids = kept.training_batch(np.arange(6))[0]
    first = kept.network._kept.of(ids.ids, ids.widths)
    calls = calls_of_block(anew, 0)
    order = torch.tensor([4, 1, 0])
    again = anew.network._kept.of(ids.ids[order], ids.widths[order])
    assert len(calls) == 3 and torch.equal(first[order], again)
    assert torch.equal(anew.network._kept.of(ids.ids[order], ids.widths[order]), again) and len(calls) == 6
    assert torch.equal(kept.network._kept.of(ids.ids, ids.widths), first)
    width = int(ids.widths[1])
    assert torch.equal(kept.network._kept.of(ids.ids[1:2, :width], ids.widths[1:2])[0], first[1, :width])
    assert not first[0, int(ids.widths[0]) :].any()
    for problem in (kept, anew):
        problem.point[:] = problem.x0()
    assert kept.objective(1, 3).loss(2) == anew.objective(1, 3).loss(2)


def test_another_process_finds_them_in_a_file_and_computes_none(make: Any, opt: Path, tmp_path: Path) -> None:
    settings = dict(validation=0, train=LAST["train"])
    first, second = (bind(make(**settings)) for _ in range(2))
    ids = first.training_batch(np.arange(6))[0]
    (file,) = (tmp_path / "states").glob("*.sqlite")
    calls = calls_of_block(second, 0)
    again = second.training_batch(np.arange(6))[0]
    assert torch.equal(again.states, ids.states) and not calls
    files = 1
    model = json.loads((opt / "config.json").read_text())
    gelu = {"activation_function": "gelu"}
    for fields, changed in (({"dtype": "bfloat16"}, {}), ({"batching": "packed"}, {}), ({}, gelu)):
        (opt / "config.json").write_text(json.dumps(model | changed))
        other, files = bind(make(**settings, **fields)), files + 1
        calls = calls_of_block(other, 0)
        other.training_batch(np.arange(6))
        assert len(calls) == 6 and len([*(tmp_path / "states").glob("*.sqlite")]) == files, "states of another's bits"
        assert (other.identity() != first.identity()) == bool(changed or fields.get("dtype"))
    (opt / "config.json").write_text(json.dumps(model))

    with sqlite3.connect(file) as database:  # other bits are seen
        database.execute("update states set states = zeroblob(length(states))")
    third = bind(make(**settings))
    calls = calls_of_block(third, 0)
    assert torch.equal(third.training_batch(np.arange(6))[0].states, ids.states) and len(calls) == 6


@pytest.mark.parametrize("damage", [b"nothing of SQLite", None])
def test_a_damaged_file_of_states_is_begun_anew(tmp_path: Path, damage: bytes | None) -> None:
    path, key, states = tmp_path / "states.sqlite", bytes(24), torch.randn(3, 8)
    with closing(StatesFile(path)) as file:
        file.put(key, states)
        kept = file.get(key)
        assert kept is not None and torch.equal(kept, states)
    with path.open("r+b") as raw:  # of None its pages, not its head
        raw.seek(0 if damage else 4096)
        raw.write((damage or bytes(17)) * 100)
    found = []
    for _ in range(3):
        with closing(StatesFile(path)) as file:
            found.append(file.get(key) is not None)
            file.put(key, states)
    assert found == [False, False, True]


def test_a_file_of_states_is_not_larger_than_it_may_be_and_serves_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states_file, "MOST_BYTES", 20_000)
    (tmp_path / "gone.sqlite").symlink_to("nowhere")
    states, keys = torch.randn(3, 8), [number.to_bytes(24, "little") for number in range(1000)]
    with closing(StatesFile(tmp_path / "states.sqlite")) as file, ThreadPoolExecutor(1) as other:
        list(other.map(lambda key: file.put(key, states), keys))
        held = sum(file.get(key) is not None for key in keys)
    assert 0 < held < 200 and (tmp_path / "states.sqlite").stat().st_size < 100_000
    with closing(StatesFile(tmp_path / "states.sqlite")) as file:
        file.put(bytes(48), torch.randn(6, 8))
        assert file.get(bytes(48)) is None and file.get(keys[0]) is not None
    with closing(sqlite3.connect(tmp_path / "states.sqlite")) as database, database:
        database.execute("update states set states = null")
    with closing(StatesFile(tmp_path / "states.sqlite")) as file:
        assert file.get(keys[0]) is None


@pytest.mark.parametrize("spoil", ["more", "trained"])
def test_a_model_whose_blocks_are_no_chain_is_one_sentence(tmp_path: Path, texts: Path, spoil: str) -> None:
    folder = write_family(tmp_path, "llama")
    problem = bind(LanguageModel.model_validate({"model": str(folder), "data": str(texts / "sst2"), **LAST}))
    model = problem.network._model
    if spoil == "trained":
        model.get_input_embeddings().weight.requires_grad_(True)
        expected = "LlamaForCausalLM, which uses trained weights before them; expected full, lora or layernorm"
    else:
        beside: list[torch.Tensor] = []
        model.model.layers[0].self_attn.register_forward_hook(lambda *_: beside.append(torch.ones(())))
        model.model.norm.register_forward_hook(lambda layer, args, out: out + len(beside))
        expected = "LlamaForCausalLM, whose blocks hand on more than their states; expected"
    kept = KeptStates(model, 1, 1 << 20)

    def logits(ids: torch.Tensor, states: torch.Tensor | None) -> torch.Tensor:
        with kept.given(states):
            return model(input_ids=ids, use_cache=False).logits  # type: ignore[no-any-return]

    with pytest.raises(DataError, match=f"found last-blocks, and {expected}"):
        kept.check(logits, 400)


def test_more_blocks_than_the_model_has_are_one_sentence(make: Any) -> None:
    with pytest.raises(DataError, match=r"task\.train\.blocks: found 3; expected at most 2, the model's blocks"):
        _ = make(train={"kind": "last-blocks", "blocks": 3}).dimension


@pytest.fixture
def scenario(opt: Path, texts: Path) -> Any:
    """A function that makes scenarios that fine-tune the last block with 4 clients, 2 per round."""

    def make_scenario(algorithm: dict[str, Any], rounds: int = 3, **train: Any) -> Any:
        document = {
            "name": "last",
            "task": {
                "name": "language-model",
                "model": str(opt),
                "data": str(texts / "sst2"),
                "validation": 0,
                "batch_size": 4,
                "train": LAST["train"] | train,
            },
            "algorithm": algorithm,
            "participation": {"clients": 4, "cohort": 2},
            "stop": {"rounds": rounds},
            "verify": True,
        }
        return validate(document, "a test")

    return make_scenario


DECOMFL = {"name": "decomfl", "perturbations": 2, "learning_rate": 0.01}


@pytest.mark.parametrize("algorithm", [DECOMFL, HISO], ids=lambda algorithm: str(algorithm["name"]))
def test_a_run_has_the_same_bits_however_it_reverts_and_whatever_is_kept(
    tmp_path: Path, scenario: Any, algorithm: Any
) -> None:
    ways = {
        "copy": scenario(algorithm | {"revert": "copy"}),
        "light": scenario(algorithm | {"revert": "light"}),
        "anew": scenario(algorithm | {"revert": "copy"}, kept_mb=0),
    }
    runs = {name: run(what, tmp_path / name) for name, what in ways.items()}
    assert len({each.digest for each in runs.values()}) == 1
    assert runs["copy"].summary["version"] == 3 and runs["copy"].metrics["loss"].nunique() > 1


@pytest.mark.parametrize(
    "algorithm",
    [DECOMFL | {"revert": "compensate"}, {"name": "fedavg", "local_steps": 2}],
    ids=["compensate", "fedavg"],
)
@pytest.mark.usefixtures("warm_workers")
def test_worker_processes_compute_the_same_bits(tmp_path: Path, scenario: Any, algorithm: Any) -> None:
    what = scenario(algorithm)
    single = run(what, tmp_path / "memory")
    distributed = run(what, tmp_path / "tcp", placement=Placement("tcp", 2))
    assert outcome(single) == outcome(distributed) and single.summary["refusals"] == {}
