"""The claims of the papers' figures, and what our runs say of them: docs/claims.json and docs/claims.md.

    seedbus study figures/NAME --out studies             # make the runs of a study
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
from seedbus.studies.study.cells import Plan, claims_of, plan_of, values_of_metric
from seedbus.studies.study.claims import Judged, chance, in_words, judged, verdicts
from seedbus.studies.study.intervals import CONFIDENCE
from seedbus.studies.study.pool import Pool
from seedbus.studies.study.possible import impossible_rows
from seedbus.studies.study.store import Store
from seedbus.studies.study.study import Conduct

WORDS = {"name", "description"}
SAYS = WORDS | {"claim", "source", "published", "unpublished", "expect"}
"""The fields of a study that change no run."""
KEPT, PAGE = "claims.json", "claims.md"
Kept = dict[str, dict[str, Any]]
HEAD = """# Claims

What the papers' figures and tables claim, and what runs of Seedbus say of it. Each row is a study that comes with
Seedbus (`seedbus list studies`), whose `expect:` has the claim in numbers ([studies.md](studies.md#claims)). A claim
*holds* if all of its expectations do: the 95% interval of the mean over seeds lies within their bounds. It *does not
hold* if one interval lies outside, also when it is widened for the number of the claim's expectations (Bonferroni), and
if no tuned value of these rows is at the edge of what was tried. Otherwise it is *not settled*.

The level of a row, that a row is within a margin of another, that rows differ, and by how much, are claims of their
own, and so is each figure: where their verdicts differ, each is told. A difference has to be half of that in the
paper's table at least; where the paper has a drawing only, half a point of accuracy, 0.001 of a loss, or a twentieth of
rounds, bytes and distances. What cannot be had from what is published is
[called so](#not-reproducible-from-what-is-published).

`python benchmarks/claims.py --write docs` computes this page from [claims.json](claims.json), which has the figures of
every run. Nothing here was run on a GPU.
"""
UNPUBLISHED = """
## Not reproducible from what is published

The logs of DeComFL on MNIST that its authors published in May 2024 rise from 31 to 34% after 20 rounds to 88 to 91%
after 260, and to 95% after 3,000. Their names say central differences, P = 20, a rate of 0.001 and momentum 0.9. No
file tells the rest, and with what the code of that day does by itself training diverges. So the studies that ask for
these curves have this verdict. Those whose names end in `-stable` test the same order at half of that rate, with two
clients a round, in the first 20 rounds, in which no run diverges.

| what | accuracy on the test set after so many rounds |
|---|---|
| the logs with K = 1, three seeds | 20: 31 to 34%; 80: 77 to 82%; 140: 86 to 88%; 200: 88 to 90%; 260: 88 to 91% |
| `decomfl-mnist-authors`: 10 of 100 clients, batches of 32 | 20: 34%; 80: 77%; 140: 56%; 180: 19%, loss 1,232 |
| the same with K = 4, a rate of 0.0005 and 2 clients | 10: 48%; 20: 65%; 30: 72%; 40: 69% |
| their defaults: 3 of 5 clients, batches of 256, μ = 1e-4 | 140: 83%; 220: 45% (an audit in November 2026) |
| their own classes of that day, batches of 32 | 100: 68%; 200: a loss of 10³² (the same audit) |

The second row is `seedbus run decomfl-mnist-authors --set evaluation.every=20 --set stop.rounds=180` on an AMD EPYC;
the third has these settings, seed 1. So the two programs agree, and the logs had something that no file tells; their
server could already change P during a run.
"""
PUBLISHED = """
## The papers' figures and tables

Every figure and table, with its studies and the verdicts of those that were run. The last column has what they leave
out, and why.

| paper | figure or table | studies | not there |
|---|---|---|---|
"""


def digest(plan: Plan) -> str:
    """Return 16 hexadecimal digits of what makes a study's runs: its file, and the scenarios on which it is based."""
    study = plan.study.model_dump(mode="json", exclude_defaults=True, exclude=SAYS)
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
            "at_edge": results.at_edge,
        }


def uncounted(facts: dict[str, Any]) -> str:
    """Return what the processor time of kept runs leaves out, as a clause; "" if nothing."""
    resumed = facts.get("resumed", 0)
    return f"; without what {resumed} took before they were resumed" if resumed else ""


def is_current(facts: dict[str, Any], plan: Plan) -> bool:
    """Whether what was kept of a study is of its file as it is now, and has all that its expectations need."""
    needed = ((each.figure, row) for each in plan.study.expect for row in each.rows.values())
    return facts["study"] == digest(plan) and all(row in facts["figures"].get(figure, {}) for figure, row in needed)


def parts_of(plan: Plan, facts: dict[str, Any]) -> list[Judged]:
    """Judge the expectations of a study by what was kept of it."""
    study, steps, of_metric, claims = plan.study, facts.get("steps", {}), values_of_metric(plan), claims_of(plan)
    samples = {
        figure: {row: {int(seed): value for seed, value in values.items()} for row, values in by_row.items()}
        for figure, by_row in facts["figures"].items()
    }
    return [
        judged(
            each,
            samples,
            study.seeds,
            study.ask.confidence,
            steps if each.figure in of_metric else {},
            together=claims.count(claim),
            at_edge=facts.get("at_edge", {}),
        )
        for each, claim in zip(study.expect, claims, strict=True)
    ]


def page(kept: Kept) -> str:
    """Return the page."""
    plans = {name: plan_of(name) for name in studies()}
    current = {name: kept[name] for name in plans if name in kept and is_current(kept[name], plans[name])}
    rows, details, found, intervals = [], [], dict[str, str](), list[Judged]()
    for name, plan in sorted(plans.items(), key=lambda each: each[0] not in current):
        study = plan.study
        short = name.removeprefix("figures/")
        if name not in current:
            verdict = f"not run: {needs(name, plan)}"
            if study.unpublished:
                found[short] = in_words(verdicts(claims_of(plan), [], study.unpublished))
                verdict = f"**{found[short]}**: {study.unpublished}"
            rows.append(f"| {study.source} | {study.claim} | {verdict} | `{short}` |")
            continue
        facts, parts = current[name], parts_of(plan, current[name])
        intervals += parts
        found[short] = in_words(verdicts(claims_of(plan), parts, study.unpublished))
        rows.append(f"| {study.source} | {study.claim} | **{found[short]}** | [`{short}`](#{short.lower()}) |")
        minutes = facts["cpu_s"] / 60
        wrong = chance(parts, study.ask.confidence)
        details += [
            f"\n### {short}\n",
            f"{study.description}. {study.source}. {study.claim}: **{found[short]}**.\n",
            "| expected | found | |\n|---|---|---|",
            *(f"| {part.expected} | {part.found} | {part.verdict} |" for part in parts),
            f"\n`seedbus study {name}`: {len(plan.cells) * len(study.seeds)} runs, {minutes:.1f} min of one core,"
            f" {facts['processor']}, Seedbus {facts['seedbus']}{uncounted(facts)}. {wrong}{'.' * bool(wrong)}".rstrip(),
        ]
    table = "| figure | claim | verdict | study |\n|---|---|---|---|\n" + "\n".join(rows)
    told = (
        f"\nOn this page stand {chance(intervals, CONFIDENCE)}.\n\n"
        "The command of each is `seedbus study figures/STUDY`; with `--dry-run` it says how long it would take\n"
        "on the machine at hand, once the data is there. The times above are of one core and of a GPU, foreseen and\n"
        "not measured: the study's file says how.\n"
    )
    run = "\n## What was run\n" + "\n".join(details)
    list_of_all = published([name.removeprefix("figures/") for name in plans], found)
    return f"{HEAD}\n{table}\n{told}{run}\n{UNPUBLISHED}{list_of_all}"


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
    return "; ".join(
        [*without(plan), f"needs {', '.join(sorted(found))}", *(f"{processor}: {time}" for processor, time in takes)]
    )


def without(plan: Plan) -> list[str]:
    """Return which rows of a study cannot run, by their variants, and why the first cannot; nothing if all can."""
    found = impossible_rows(plan)
    rows = dict.fromkeys(cell.variant or cell.name for cell in plan.cells if cell.name in found)
    return [f"{', '.join(rows)} cannot run ({next(iter(found.values()))})"] if found else []


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
