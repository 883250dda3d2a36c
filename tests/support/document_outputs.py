"""Whether a command printed what a page shows.

In the shown text, a line `…` stands for any lines, and `…` in a line for any text. A long line may be broken at a
space. Fractions, percentages, times and digests may differ: losses depend on the processor, and times on everything.
Whole numbers and bytes may not, unless the block says so. Digests that are equal on the page have to be equal. On a
processor like the page's only times and rates may differ. A busy machine's lines of progress may be printed besides.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"(?P<digest>\b[0-9a-f]{32}\b)|(?P<number>\d[\d,]*(?:\.\d+)*(?:e[+-]?\d+)?)(?P<unit>%| ?[A-Za-zµ]+\b)?|(?P<any>…)"
)
_PROGRESS = re.compile(r"^.+: [\d,]+ of [\d,]+, about .+ left\n", re.M)  # of what lasts 15 seconds and more
_BYTES = {"B", "kB", "MB", "GB", "bytes"}
_SECONDS = {"s", "ms", "µs", "min", "h"}


def is_as_shown(
    shown: str, printed: str, digests: dict[str, str], *, is_exact: bool = True, is_same_processor: bool = False
) -> bool:
    """Return whether what was printed is what is shown.

    Args:
        shown: the text of the page.
        printed: what was printed, without spaces at the ends of lines.
        digests: each digest that the page has shown so far, with the one that was printed for it; is extended.
        is_exact: whole numbers and bytes have to be the same.
        is_same_processor: if so, fractions, percentages and digests have to be the same too, but for times and rates.
    """
    pattern = _pattern(shown, is_exact, is_same_processor)
    found = re.fullmatch(pattern, printed) or re.fullmatch(pattern, _PROGRESS.sub("", printed))
    if found is None:
        return False
    pairs = zip(re.findall(r"\b[0-9a-f]{32}\b", shown), found.groups(), strict=True)
    return all(digests.setdefault(digest, other) == other for digest, other in pairs)


def trimmed(text: str) -> str:
    """Return a text without spaces at the ends of its lines."""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def _pattern(shown: str, is_exact: bool, is_same_processor: bool) -> str:
    lines = trimmed(shown).splitlines()
    return "".join(
        "(?:.*\n)*?" if line.strip() == "…" else f"{_line(line, is_exact, is_same_processor)}[ \n]" for line in lines
    )


def _line(line: str, is_exact: bool, is_same_processor: bool) -> str:
    parts, at = [], 0
    for found in _TOKEN.finditer(line):
        parts += [_spaced(line[at : found.start()]), _token(found, is_exact, is_same_processor)]
        at = found.end()
    return "".join([*parts, _spaced(line[at:])])


def _token(found: re.Match[str], is_exact: bool, is_same_processor: bool) -> str:
    if found["any"]:
        return ".*"
    if found["digest"]:
        return f"({found['digest'] if is_exact and is_same_processor else '[0-9a-f]{32}'})"
    number, unit, after = found["number"], found["unit"] or "", found.string[found.end() :]
    is_time = unit.strip() in _SECONDS
    is_counted = unit.strip() in _BYTES or ("." not in number and "e" not in number and unit != "%" and not is_time)
    is_computed = after.startswith(" simulated") or not (is_time or after.startswith("/s"))
    is_the_same = is_exact and (is_counted or (is_same_processor and is_computed))
    return (re.escape(number) if is_the_same else r"[\d.,]+(?:e[+-]?\d+)?") + _spaced(unit)


def _spaced(text: str) -> str:
    """Return a pattern of a text in which spaces and rules match others: columns are as wide as their numbers."""
    return re.sub(r"(?:\\ )+", r"[ ]+", re.sub(r"([━─═])+", r"\1+", re.escape(text)))
