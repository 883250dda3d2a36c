"""The papers' figures and tables, and what each has here: studies, or the reason why there is none.

`claims.py` prints the list at the end of docs/claims.md. Studies are named by patterns, so that a new one is found if
its name says what it shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple


class Published(NamedTuple):
    """Figures or tables of a paper.

    Attributes:
        what: which.
        patterns: of the names of studies.
        left_out: what they do not show, and why, or where it is measured.
    """

    what: str
    patterns: tuple[str, ...] = ()
    left_out: str = ""


DRAWN, WORDS = "a drawing", "notation or settings"
TINY = "Tiny-ImageNet: `task: image-folder` reads it (`--set task=…`), but no study names a folder that may be missing"

PAPERS: Mapping[str, tuple[Published, ...]] = {
    "DeComFL": (
        Published("Figure 1", left_out=DRAWN),
        Published("Figure 2", ("decomfl-figure-2-*",)),
        Published("Figure 3", ("decomfl-figure-3", "decomfl-figure-3-*")),
        Published("Figure 4", ("decomfl-figure-4", "decomfl-figure-4-*")),
        Published("Figure 5", ("decomfl-figure-5-*",)),
        Published("Figure 6", ("decomfl-figure-6",)),
        Published(
            "Table 1, Theorems 1 and 2",
            ("decomfl-table-1", "decomfl-table-1-*"),
            "the factors of the rates: trends only",
        ),
        Published("Table 2", ("decomfl-table-2-*",), "FedAvg's column, which has no claim beside bytes (Table 1)"),
        Published("Tables 3 and 5", left_out=f"{WORDS}; those of Table 5 are in `lm/*`"),
        Published("Table 4", left_out="memory is no figure of a study; `benchmarks/memory.py` measures it"),
        Published(
            "Table 6", ("decomfl-table-6", "decomfl-table-6-*"), "MeZO, FedZO and P = 5 on sets other than SST-2"
        ),
        Published("Appendix A.1", ("decomfl-appendix-a1",), "ZO-SVRG, which Seedbus does not have"),
        Published("Appendix A.2", ("decomfl-appendix-a2",), "memory, as Table 4"),
        Published(
            "Appendix A.3",
            ("decomfl-appendix-a3",),
            "the private shift, for it needs a secret of the clients ([privacy.md](privacy.md))",
        ),
    ),
    "DeComFL, workshop": (
        Published("Figure 1", left_out=DRAWN),
        Published("Table 1", ("decomfl-workshop-table-1",), "OPT-1.3B, as in DeComFL's Table 2"),
        Published("Tables 2 and 3", left_out=WORDS),
    ),
    "HiSo": (
        Published("Figures 1, 2, 3 and 7", left_out=DRAWN),
        Published(
            "Figure 4, Table 1", ("hiso-figure-4", "hiso-figure-4-*"), "the eigenvalues of the paper's simulation"
        ),
        Published("Figure 5", ("hiso-figure-5-*",)),
        Published("Figure 6", ("hiso-figure-6",), "OPT-350M and 1.3B, whose bytes are in `hiso-table-5-*`"),
        Published("Figure 8", ("hiso-figure-8",)),
        Published("Table 2", ("hiso-table-2-*",)),
        Published("Tables 3 and 4", left_out=WORDS),
        Published("Table 5", ("hiso-table-5-*",)),
    ),
    "FedACG": (
        Published("Figure 1", left_out=DRAWN),
        Published("Figure 2", ("fedacg-figure-2", "fedacg-figure-2-*"), "(a), a loss surface, is no number"),
        Published("Tables 1(a) and 1(b)", ("fedacg-table-1*",), TINY),
        Published("Table 2, Figure E", ("fedacg-table-2", "fedacg-table-2-*")),
        Published("Table 3, Figure F", ("fedacg-table-3",)),
        Published("Table 4", ("fedacg-table-4", "fedacg-table-4-*"), "its row with momentum and the proximal term"),
        Published("Table 5", ("fedacg-table-5", "fedacg-table-5-*")),
        Published("Table 6", ("fedacg-table-6", "fedacg-table-6-*")),
        Published("Table 7", ("fedacg-table-7",), "CelebA: no task reads LEAF's files of it, and its CNN is not here"),
        Published("Table 8", ("fedacg-table-8",), "FedCM, which has no numbers there"),
        Published("Table A", ("fedacg-table-A", "fedacg-table-A-*"), "Tiny-ImageNet, as in Table 1"),
        Published("Tables B and C", ("fedacg-table-[BC]", "fedacg-table-[BC]-*")),
        Published("Figure A", ("fedacg-figure-A",), "how smooth the curves are"),
        Published(
            "Figures B, C and D", left_out="curves of Tables 1, B and C, which the reports of those studies draw"
        ),
    ),
    "FedZO": (
        Published("Figure 1", ("fedzo-figure-1?",), "the paper's classifier of CIFAR-10: stand-ins on Fashion-MNIST"),
        Published("Figure 2", ("fedzo-figure-2",), "as Figure 1"),
        Published("Figure 3", ("fedzo-figure-3", "fedzo-figure-3b")),
        Published("Figure 4", ("fedzo-figure-4", "fedzo-figure-4b")),
        Published("Figure 5", ("fedzo-figure-5", "fedzo-figure-5b")),
        Published("Table I", ("fedzo-table-1",), "ZONE-S and ZO-SGD"),
    ),
    "On SmolLM2-135M": (
        Published("DeComFL's Tables 2 and 6, HiSo's Table 2", ("smollm2-*",), "their numbers, which are of OPT"),
    ),
    "Flower's niid_bench": (Published("the table, Fashion-MNIST", ("niid-bench-*",), "MNIST and CIFAR-10"),),
}


def listed(studies: list[str]) -> Iterator[tuple[str, Published, list[str]]]:
    """Yield each figure or table with its paper and its studies.

    Args:
        studies: names of studies, without their folder.
    """
    for paper, published in PAPERS.items():
        for each in published:
            yield paper, each, [name for name in studies if any(fnmatchcase(name, p) for p in each.patterns)]
