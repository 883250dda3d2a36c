"""The package's metadata: what it requires is what its code imports, and its extras are those that are spoken of."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

import seedbus

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = [
    path
    for room in ("agents", "algorithms", "bus", "models", "scenarios", "studies", "seedbus/cli")
    for path in (ROOT / room).rglob("*.py")
    if "flower_app" not in path.parts  # of an exported app, which requires Seedbus and Flower
]
DISTRIBUTIONS = {
    "PIL": "pillow",
    "dp_accounting": "dp-accounting",
    "flwr_datasets": "flwr-datasets",
    "mlflow": "mlflow-skinny",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
EXTRAS = {
    "cluster",
    "digits",
    "flwr",
    "gpu",
    "hub",
    "images",
    "pages",
    "privacy",
    "quantized",
    "secure",
    "study",
    "track",
}
READ = {"plotly", "scikit-learn"}  # files of theirs are read, and nothing of them is imported
BROUGHT_BY = {
    "google": "wandb",  # protobuf
    "huggingface_hub": "transformers",
    "llvmlite": "numba",
    "pydantic_core": "pydantic",
    "tokenizers": "transformers",
    "typing_extensions": "pydantic",
}


def modules(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def required(requirements: list[str]) -> set[str]:
    return {re.split(r"[>=; ]", requirement)[0] for requirement in requirements}


@pytest.mark.slow
def test_every_package_that_the_code_imports_is_required_by_the_package_or_by_an_extra_for_users() -> None:
    imported = {module.partition(".")[0] for path in SOURCES for module in modules(path)}
    foreign = {DISTRIBUTIONS.get(name, name) for name in imported - sys.stdlib_module_names - {"seedbus"}} | READ
    extras = [PROJECT["optional-dependencies"][name] for name in EXTRAS]
    offered = required(sum(extras, PROJECT["dependencies"]))
    assert {BROUGHT_BY.get(name, name) for name in foreign} <= offered
    assert all(required(extra) <= foreign for extra in extras)


def test_every_extra_that_is_spoken_of_is_there() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *SOURCES]
    named = {name for page in pages for name in re.findall(r"seedbus\[(\w+)\]", page.read_text(encoding="utf-8"))}
    assert named == EXTRAS <= PROJECT["optional-dependencies"].keys()


def test_the_description_of_the_package_has_no_link_that_needs_a_checkout() -> None:
    text = (ROOT / PROJECT["readme"]).read_text(encoding="utf-8")
    assert text and not [link for link in re.findall(r"\]\(([^)]*)\)", text) if not link.startswith("https://")]


def test_package_citation_and_changelog_agree_on_the_version_and_its_date() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    cited = re.search(r"^version: (\S+)\ndate-released: (\S+)$", citation, re.M)
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+) \((.+)\)$", changes, re.M)
    assert cited is not None and newest is not None
    assert cited[1] == newest[1] and PROJECT["version"] == seedbus.__version__
    # a run that another version began is not resumed with other bits, so changes since a release have a version too
    number, dev, _ = PROJECT["version"].partition(".dev")
    assert bool(dev) == ("\n## Unreleased\n" in changes) == (number != cited[1])
    assert date.fromisoformat(cited[2]) == date.fromisoformat(newest[2])
