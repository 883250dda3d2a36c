"""Pictures of the site and of a run's page, on a desktop and on a phone, as headless chromium draws them.

    make site && .venv/bin/python benchmarks/screenshots.py --write docs
    .venv/bin/python benchmarks/screenshots.py --write docs --only analysis

The run is the quickstart; the analysis is one of HiSo on digits after 200 rounds. Each picture is a WebP file of at
most 150 kB.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

import seedbus
from seedbus.scenarios.analysis.analyse import analyse
from seedbus.scenarios.analysis.curvature import Effort

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build/site"
NAMES = ["site", "tutorial", "run", "analysis"]
sys.path.append(str(ROOT / "tests/support"))

from browser import DESKTOP, PHONE, browser  # noqa: E402

MOST_BYTES = 150_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, required=True, metavar="FOLDER", help="where the pictures are written")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="these pages alone")
    asked = parser.parse_args()
    folder: Path = asked.write
    if {"site", "tutorial"} & {*asked.only} and not (SITE / "index.html").exists():
        sys.exit("there is no site in build/site; `make site` builds it")
    with TemporaryDirectory() as room:
        pages = {name: page_of(name, Path(room)) for name in asked.only}
        with browser(Path(room) / "profile") as tab:
            for name, page in pages.items():
                for size, of in ((DESKTOP, "desktop"), (PHONE, "phone"))[: 1 if name == "analysis" else 2]:
                    tab.show(page, size)
                    picture = Path(room) / "picture.png"
                    tab.picture(picture)
                    path = folder / f"screen-{name}-{of}.webp"
                    Image.open(picture).save(path, quality=80, method=6)
                    assert path.stat().st_size <= MOST_BYTES, path
                    print(f"{path}: {path.stat().st_size:,} bytes")


def page_of(name: str, room: Path) -> str:
    """Return the address of a page, whose run is made in a folder."""
    if name == "site":
        return (SITE / "index.html").as_uri()
    if name == "tutorial":
        return (SITE / "tutorials/first-comparison.html").as_uri()
    if name == "run":
        results = seedbus.run("quickstart", out=room / "run", progress=False)
        return (results.folder / "report.html").resolve().as_uri()
    results = seedbus.run(seedbus.load("hiso-digits", ["stop.rounds=200"]), out=room / "analysed", progress=False)
    analyse(results.folder, only=["spectrum", "whitening", "hessian"], effort=Effort(samples=200))
    return (results.folder / "report.html").resolve().as_uri() + "#spectrum"


if __name__ == "__main__":
    main()
