"""Pictures of the site and of the pages of a run and of a study, on a desktop and on a phone, as chromium draws them.

    make site && .venv/bin/python benchmarks/screenshots.py --write docs
    .venv/bin/python benchmarks/screenshots.py --write docs --only run study analysis

The run is the quickstart with a partition, and the study compares two algorithms by it: both have a dark page, too. The
analysis is one of HiSo on digits after 200 rounds. Each picture is a WebP file of at most 150 kB.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

import seedbus
from seedbus.studies.analysis.analyse import analyse
from seedbus.studies.analysis.curvature import Effort
from seedbus.studies.study.study_page import write_report

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests/support"))

from browser import DESKTOP, PHONE, Browser, browser  # noqa: E402

MOST_BYTES = 150_000
SITE = {"site": "index.html", "tutorial": "tutorials/first-comparison.html"}
DRAWN = ("run", "study")
ANALYSIS = "analysis"
PAGES = [*SITE, *DRAWN, ANALYSIS]
SHAPES = {"desktop": (DESKTOP, False), "phone": (PHONE, False), "dark": (DESKTOP, True)}
PARTED = [{"fault": "partition", "fraction": 0.5, "at_round": 40, "for_rounds": 20}]


def run_page(room: Path) -> Path:
    """Make the run, and return its page."""
    scenario = seedbus.load("quickstart", ["stop.rounds=120", "evaluation.every=4"])
    what = scenario.resolved() | {"faults": [*scenario.resolved()["faults"], *PARTED]}
    return seedbus.run(what, out=room / "run", progress=False).folder / "report.html"


def study_page(room: Path) -> Path:
    """Make the study, and return its page."""
    fedavg = {"algorithm": {"name": "fedavg", "local_steps": 5, "learning_rate": 0.1}}
    study = {
        "name": "pictures",
        "base": "quickstart",
        "variants": {"decomfl": [], "fedavg": fedavg},
        "grid": {"stop.rounds": [60]},
        "seeds": [1, 2],
    }
    return write_report(seedbus.study(study, room, jobs=2))


def analysis_page(room: Path) -> Path:
    """Make a run, analyse it, and return its page."""
    results = seedbus.run(seedbus.load("hiso-digits", ["stop.rounds=200"]), out=room / "analysed", progress=False)
    analyse(results.folder, only=["spectrum", "whitening", "hessian"], effort=Effort(samples=200))
    return results.folder / "report.html"


def pictures(tab: Browser, name: str, page: Path, room: Path, folder: Path) -> None:
    """Write the pictures of one page."""
    for of, (size, is_dark) in SHAPES.items():
        if (is_dark and name in SITE) or (name == ANALYSIS and of != "desktop"):
            continue
        tab.show(page.resolve().as_uri(), size, is_dark=is_dark)
        if name == ANALYSIS:
            tab.evaluate("document.getElementById('spectrum').scrollIntoView()")
        picture = room / "picture.png"
        tab.picture(picture)
        path = folder / f"screen-{name}-{of}.webp"
        Image.open(picture).save(path, quality=80, method=6)
        assert path.stat().st_size <= MOST_BYTES, path
        print(f"{path}: {path.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, required=True, metavar="FOLDER", help="where the pictures are written")
    parser.add_argument("--only", nargs="+", choices=PAGES, default=PAGES, help="these pages alone")
    asked = parser.parse_args()
    names: list[str] = asked.only
    site = ROOT / "build/site"
    if set(names) & set(SITE) and not (site / "index.html").exists():
        sys.exit("there is no site in build/site; `make site` builds it")
    with TemporaryDirectory() as made:
        room = Path(made)
        made_by = {"run": run_page, "study": study_page, ANALYSIS: analysis_page}
        with browser(room / "profile") as tab:
            for name in names:
                page = site / SITE[name] if name in SITE else made_by[name](room)
                pictures(tab, name, page, room, asked.write)


if __name__ == "__main__":
    main()
