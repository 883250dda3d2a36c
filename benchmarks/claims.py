"""The claims of the papers' figures, and what our runs say of them: docs/claims.json and docs/claims.md.

    seedbus study figures/NAME --folder studies             # make the runs of a study
    python benchmarks/claims.py --keep studies --write docs # keep what its expectations need, and write the page
    python benchmarks/claims.py --write docs                # write the page from what is kept

What is kept is the figures of each run and seed, never a verdict: the page's verdicts are computed from them anew. What
was kept of a study whose file has changed since is not used.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from published_figures import listed

from seedbus.scenarios.schema.loading import read_document, studies
from seedbus.scenarios.study.cells import Plan, plan_of, values_of_metric
from seedbus.scenarios.study.claims import judged, verdict
from seedbus.scenarios.study.pool import Pool
from seedbus.scenarios.study.store import Store
from seedbus.scenarios.study.study import Conduct

WORDS = {"name", "description"}
KEPT, PAGE = "claims.json", "claims.md"
Kept = dict[str, dict[str, Any]]
HEAD = """# Claims

What the papers' figures and tables claim, and what runs of Seedbus say of it. Each row is a study that comes with
Seedbus (`seedbus list studies`), whose `expect:` has the claim in numbers ([studies.md](studies.md#claims)). A claim
*holds* if all of its expectations do: the 95% interval of the mean over seeds lies within their bounds. It *does not
hold* if one interval lies outside, and is *not settled* if one crosses a bound. `python benchmarks/claims.py --write
docs` computes this page from [claims.json](claims.json), which has the figures of every run. Nothing here was run on
a GPU.
"""
PUBLISHED = """
## The papers' figures and tables

Every figure and table, with its studies and the verdicts of those that were run. The last column has what they leave
out, and why.

| paper | figure or table | studies | not there |
|---|---|---|---|
"""


def digest(plan: Plan) -> str:
    """Return 16 hexadecimal digits of a study's file and of the scenarios on which it is based, without their words."""
    study = plan.study.model_dump(mode="json", exclude_defaults=True, exclude=WORDS | {"claim", "source", "published"})
    bases = [plan.study.base, *(each.base for each in plan.study.variants.values())]
    based_on = {
        base: {field: value for field, value in read_document(base)[0].items() if field not in WORDS}
        for base in bases
        if isinstance(base, str)
    }
    content = [study, based_on]
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8).hexdigest()


def keep(folder: Path, kept: Kept) -> None:
    """Add what the finished studies in a folder of studies found."""
    for name in studies():
        plan = plan_of(name)
        if not (folder / plan.study.name).is_dir():
            continue
        results = Conduct(plan, Store(folder), Pool(0), is_idle=True).run()
        if not results.is_complete or results.diverged:
            continue
        runs = [member.run.results for members in results.members.values() for member in members]
        summaries = [run.summary for run in runs if run is not None]
        kept[name] = {
            "study": digest(plan),
            "seedbus": summaries[0]["seedbus"],
            "processor": summaries[0]["processor"],
            "cpu_s": round(sum(summary["cpu_s"] for summary in summaries), 1),
            "resumed": sum(bool(summary["was_resumed"]) for summary in summaries),
            "figures": {
                figure: {
                    row: {str(member.seed): member.figures[figure] for member in members}
                    for row, members in results.members.items()
                }
                for figure in sorted({each.figure for each in plan.study.expect})
            },
            "steps": results.steps,
        }


def uncounted(facts: dict[str, Any]) -> str:
    """Return what the processor time of kept runs leaves out, as a clause; "" if nothing."""
    resumed = facts.get("resumed", 0)
    return f"; without what {resumed} took before they were resumed" if resumed else ""


def page(kept: Kept) -> str:
    """Return the page."""
    plans = {name: plan_of(name) for name in studies()}
    current = {name: kept[name] for name in plans if name in kept and kept[name]["study"] == digest(plans[name])}
    rows, details, verdicts = [], [], dict[str, str]()
    for name, plan in sorted(plans.items(), key=lambda each: each[0] not in current):
        study = plan.study
        short = name.removeprefix("figures/")
        if name not in current:
            rows.append(f"| {study.source} | {study.claim} | not run: {needs(name, plan)} | `{short}` |")
            continue
        facts = current[name]
        samples = {
            figure: {row: {int(seed): value for seed, value in values.items()} for row, values in by_row.items()}
            for figure, by_row in facts["figures"].items()
        }
        steps, of_metric = facts.get("steps", {}), values_of_metric(plan)
        parts = [
            judged(each, samples, study.seeds, study.ask.confidence, steps if each.figure in of_metric else {})
            for each in study.expect
        ]
        verdicts[short] = verdict(parts)
        rows.append(f"| {study.source} | {study.claim} | **{verdict(parts)}** | [`{short}`](#{short.lower()}) |")
        minutes = facts["cpu_s"] / 60
        details += [
            f"\n### {short}\n",
            f"{study.description}. {study.source}. {study.claim}: **{verdict(parts)}**.\n",
            "| expected | found | |\n|---|---|---|",
            *(f"| {part.expected} | {part.found} | {part.verdict} |" for part in parts),
            f"\n`seedbus study {name}`: {len(plan.cells) * len(study.seeds)} runs, {minutes:.1f} min of one core,"
            f" {facts['processor']}, Seedbus {facts['seedbus']}{uncounted(facts)}.",
        ]
    table = "| figure | claim | verdict | study |\n|---|---|---|---|\n" + "\n".join(rows)
    told = (
        "\nThe command of each is `seedbus study figures/STUDY`; with `--dry-run` it says how long it would take\n"
        "on the machine at hand, once the data is there. The times above are of one core and of a GPU, foreseen and\n"
        "not measured: the study's file says how.\n"
    )
    run = "\n## What was run\n" + "\n".join(details)
    return f"{HEAD}\n{table}\n{told}{run}\n{published([name.removeprefix('figures/') for name in plans], verdicts)}"


def published(names: list[str], verdicts: dict[str, str]) -> str:
    """Return the list of the papers' figures and tables.

    Args:
        names: of the studies, without their folder.
        verdicts: of those that were run.
    """
    lines = []
    for paper, each, shown in listed(names):
        told = [f"`{name}`" + (f" ({verdicts[name]})" if name in verdicts else "") for name in shown]
        lines.append(f"| {paper} | {each.what} | {', '.join(told) or 'none'} | {each.left_out} |")
    return f"{PUBLISHED}{chr(10).join(lines)}\n"


def needs(name: str, plan: Plan) -> str:
    """Return what must be there for a study, as far as its scenarios say, and how long its file says that it takes."""
    found = set()
    for cell in plan.cells:
        task = cell.scenario.resolved()["task"]
        found.add(f"{task['dataset']} and {task['model']}" if task["name"] == "language-model" else task["name"])
    takes = re.findall(r"^# (CPU|GPU): (about [\d.]+ \w+)", studies()[name].read_text(encoding="utf-8"), re.MULTILINE)
    return "; ".join([f"needs {', '.join(sorted(found))}", *(f"{processor}: {time}" for processor, time in takes)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="STUDIES", help="a folder of studies")
    parser.add_argument("--write", type=Path, metavar="FOLDER", required=True, help="where claims.json and .md are")
    asked = parser.parse_args()
    path = asked.write / KEPT
    kept: Kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if asked.keep:
        keep(asked.keep, kept)
        path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    (asked.write / PAGE).write_text(page(kept), encoding="utf-8")


if __name__ == "__main__":
    main()
