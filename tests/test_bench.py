"""The table of benchmarks: the baseline, limit and aim of each row, and benchmark parts that fail."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bench
import gpu
import gpu_rounds
import memory
import pytest
import replay
from rows import HEADS, Row, Skip

from seedbus.models import Iid

ROW = Row("a replay", "s", 2.0, 10.0, "torch", 1.0, "RNG rate", "faster", 5.0)
FAKE = """
from collections.abc import Iterator
from rows import Row, Skip

def rows(is_quick):
    yield Row("one", "ms", 1.0 if is_quick else 2.0)
    print("torch has something to say")
    yield Skip("two: not here.")
    {then}
"""


@pytest.mark.parametrize(
    ("changes", "ratio", "is_met"),
    [
        ({}, 5.0, True),
        ({"aim": 5.1}, 5.0, False),
        ({"measure": "dearer", "plain": 1.0, "aim": 2.0}, 2.0, True),
        ({"measure": "dearer", "plain": 1.0, "aim": 1.9}, 2.0, False),
        ({"measure": "most", "aim": 2.0}, 0.2, True),
        ({"measure": "most", "aim": 1.9, "plain": None}, None, False),
        ({"measure": "near", "aim": 2.0}, 0.2, True),
        ({"measure": "near", "aim": 1.9}, 0.2, False),
        ({"aim": None}, 5.0, None),
    ],
)
def test_an_aim_is_met_by_its_own_measure(changes: dict[str, Any], ratio: float | None, is_met: bool | None) -> None:
    row = replace(ROW, **changes)
    assert row.ratio == (None if ratio is None else pytest.approx(ratio)) and row.is_met is is_met
    assert row.reached == 0.5
    assert row.cells()[-1] == {True: "yes", False: "no", None: ""}[is_met] and len(row.cells()) == len(HEADS)
    assert row.told()["is_met"] is is_met


@pytest.mark.parametrize("measure", ["faster", "dearer", "near"])
def test_an_aim_without_what_it_is_measured_by_is_a_mistake(measure: Any) -> None:
    with pytest.raises(AssertionError, match="a replay"):
        _ = replace(ROW, plain=None, limit=None, measure=measure).is_met


@pytest.mark.slow
def test_every_part_has_rows_and_no_benchmark_hides_its_own() -> None:
    folder = Path(bench.__file__).parent
    trees = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in folder.glob("*.py")}
    defines = {
        name
        for name, tree in trees.items()
        if any(isinstance(node, ast.FunctionDef) and node.name == "rows" for node in tree.body)
    }
    assert defines == set(bench.PARTS)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes `fake` the only benchmark part, which runs a given statement after its first rows."""

    def made(then: str) -> Path:
        (tmp_path / "fake.py").write_text(FAKE.format(then=then))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
        monkeypatch.setattr(bench, "PARTS", ("fake",))
        monkeypatch.setattr(sys, "argv", ["bench.py", "--quick", "--json", str(tmp_path / "figures.json")])
        return tmp_path / "figures.json"

    return made


@pytest.mark.slow
@pytest.mark.parametrize(("then", "code"), [("pass", 0), ("raise ValueError('no memory')", 1)])
def test_one_table_shows_what_was_measured_and_why_the_rest_was_not(
    fake: Any, then: str, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    file = fake(then)
    with pytest.raises(SystemExit) as ended:
        bench.main()
    shown, progress = capfd.readouterr()
    assert int(ended.value.code or 0) == code
    document = json.loads(file.read_text())
    assert [(row["name"], row["ours"]) for row in document["rows"]] == [("one", 1.0)] and document["quick"]
    assert document["skipped"] == ["two: not here.", "fake: failed (ValueError: no memory)"][: 1 + code]
    assert "not measured: two: not here." in shown and "fake (1 of 1)" in progress
    assert ("no memory" in shown) == bool(code)


def test_without_a_gpu_its_rows_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "obstacle", lambda: "There is no GPU here.")
    assert list(gpu.rows(True)) == [Skip("gpu: there is no GPU here.")]


@pytest.mark.slow
def test_every_row_of_the_gpu_can_be_gone_through_on_a_processor() -> None:
    """The run of lm/ on torch's path is replayed by another process to the same digest."""
    command = [sys.executable, gpu.__file__, "--dry-run", "--calls", "1", "--turns", "1", "--json"]
    shown = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    cases = [figure["case"] for figure in shown["kernels"]]
    assert sum(case.startswith("replay") for case in cases) == 7 and len(cases) == len(set(cases)) == 13
    assert {row["work"]["name"] for row in shown["rounds"]} == {it.name for it in gpu_rounds.WORKS}
    assert {row["work"]["forward"] for row in shown["crowd"]} == {it.forward for it in gpu_rounds.CROWDS}
    assert all(row[who]["seconds"] > 0 for row in shown["rounds"] + shown["crowd"] for who in ("ours", "plain"))
    (run,) = shown["replayed"]
    assert run["rounds"] == 50 and run["device"].startswith("torch, ") and run["digest"] == run["replayed"]


@pytest.mark.slow
def test_plain_torch_computes_as_many_tokens_as_seedbus(tmp_path: Path) -> None:
    work = replace(gpu_rounds.DRY_WORKS[-1], batch=8)
    memory.write(tmp_path / work.name, gpu_rounds.DRY_OPT[work.name], work.batch * work.clients)
    _, batch = gpu_rounds.network_and_batch(work, tmp_path)
    problem: Any = gpu_rounds.task_of(work, tmp_path).bind(seed=1, clients=work.clients, partition=Iid())
    ((size, (ours, _)),) = problem.objective(0, 0).parts(0)
    assert size == len(ours.ids) == 8 and ours.ids.shape == batch.images.shape


@pytest.mark.parametrize("options", [["--dry-run"], ["--only", "kernels"]])
def test_a_dry_run_and_a_part_are_not_written(options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--write", *options])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert ended.value.code == 2


def test_without_a_gpu_nothing_is_measured_and_the_exit_code_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "obstacle", lambda: "There is no GPU here.")
    for options in ([], ["--write"], ["--is-there"]):
        monkeypatch.setattr(sys, "argv", ["gpu.py", *options])
        with pytest.raises(SystemExit) as ended:
            gpu.main()
        assert ended.value.code == 3 and capsys.readouterr().out == "gpu: There is no GPU here.\n"


def test_make_gpu_runs_every_suite_that_computes_on_a_device() -> None:
    root = Path(__file__).parent
    using = {
        str(path.relative_to(root.parent))
        for path in root.rglob("test_*.py")
        if any(f"\nfrom {name} import" in path.read_text("utf-8") for name in ("devices", "triton_device"))
    }
    (listed,) = re.findall(r"^ON_DEVICES := ((?:.*\\\n)*.*)$", (root.parent / "Makefile").read_text("utf-8"), re.M)
    assert set(listed.replace("\\", " ").split()) == using


@pytest.mark.parametrize(("features", "gaussian", "rademacher"), [("+avx2,+avx512f", 6, 30), ("+avx2,-avx512f", 5, 25)])
def test_the_aims_of_a_replay_are_those_of_the_processor_that_numba_compiles_for(
    features: str, gaussian: float, rademacher: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a replay is never to be slower than a simple loop."""
    codegen = SimpleNamespace(magic_tuple=lambda: ("x86_64", "a processor", features))
    monkeypatch.setattr(replay, "cpu_target", SimpleNamespace(target_context=SimpleNamespace(codegen=lambda: codegen)))
    seconds = {
        "plain_s": 10.0,
        "gaussian_s": 1.0,
        "rademacher_s": 1.0,
        "gaussian_loop_s": 0.9,
        "rademacher_loop_s": 1.1,
    }
    rates = dict.fromkeys((replay.WORDS, replay.LOOK_UPS, replay.SIGNS, replay.MEMORY), 1e9)
    replays = [{"model": model, "law": law} | seconds for model in replay.MODELS for law in ("DeComFL", "HiSo")]
    monkeypatch.setattr(replay, "measure", lambda *_: {"replays": replays, "limits_per_s": rates})
    prefix = "replay: MNIST CNN, DeComFL, "
    found = {row.name.removeprefix(prefix): (row.aim, row.is_met) for row in replay.rows(True) if prefix in row.name}
    assert found == {
        "gaussian": (gaussian, True),
        "gaussian beside a loop": (1, False),
        "rademacher": (rademacher, False),
        "rademacher beside a loop": (1, True),
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", replay.KINDS)
def test_the_simple_loop_has_the_bits_of_a_replay(kind: str) -> None:
    """Otherwise `looped` raises."""
    replay.looped(3001, kind)()
