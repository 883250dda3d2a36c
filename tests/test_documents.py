"""What the pages show is what is printed, and the Python page names all that may be imported."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import llms
import pytest
from document_blocks import PAGES, ROOT, Block, blocks
from document_outputs import is_as_shown
from documents import follow
from processes import is_alive, kill, wait_for
from warm_command import command_of, warm

import seedbus
from seedbus import plugin
from seedbus.scenarios.schema.yaml_text import parse

BLOCKS = [(page, block) for page in PAGES for block in blocks(page)]
RUN = [(page, block) for page, block in BLOCKS if block.commands and not block.why_not]
SLOW = [page for page in PAGES if any(page == other and not block.is_soak for other, block in RUN)]
SOAK = [page for page in PAGES if any(page == other and block.is_soak for other, block in RUN)]


@pytest.mark.slow
@pytest.mark.parametrize("page", SLOW, ids=lambda page: page.stem)
@pytest.mark.timeout(1400)
def test_every_command_of_a_page_prints_what_the_page_shows(
    page: Path, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    differences = [*map(str, follow(page, tmp_path, is_same_processor=pytestconfig.getoption("exact")))]
    assert not differences, "\n".join(differences)


@pytest.mark.soak
@pytest.mark.parametrize("page", SOAK, ids=lambda page: page.stem)
def test_so_do_the_commands_that_take_minutes(page: Path, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    is_same_processor = pytestconfig.getoption("exact")
    differences = [*map(str, follow(page, tmp_path, is_soak=True, is_same_processor=is_same_processor))]
    assert not differences, "\n".join(differences)


def folder(tmp_path: Path) -> Path:
    (tmp_path / "page").mkdir()
    return tmp_path / "page"


def test_what_a_language_model_reads_first_names_every_page_of_the_site() -> None:
    """`make docs` writes it."""
    text = (ROOT / "llms.txt").read_text(encoding="utf-8")
    assert text == llms.text()
    pages = {page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert set(re.findall(r"\]\((docs/[^)]+)\)", text)) == pages


def test_a_command_stands_in_a_block_that_is_run_or_says_why_not() -> None:
    elsewhere = [
        f"{page.name}, line {block.line}: {command}"
        for page, block in BLOCKS
        if block.language in ("", "text", "sh", "bash", "shell") and not block.title
        for command in re.findall(r"^(?:\w*\$ .*|(?:seedbus|make|pip|python|for) .*)", block.text, re.M)
    ]
    assert not elsewhere, "\n".join(elsewhere)


def cases(language: str) -> pytest.MarkDecorator:
    of_language = [(page, block) for page, block in BLOCKS if block.language == language and not block.title]
    return pytest.mark.parametrize(
        ("page", "block"), of_language, ids=[f"{page.stem}-{block.line}" for page, block in of_language]
    )


@cases("yaml")
def test_a_part_of_a_scenario_or_study_is_accepted(page: Path, block: Block) -> None:
    """Also: a part that begins with the name of a file consists of lines of that file."""
    fields = parse(block.text)
    assert isinstance(fields, dict)
    first, _, rest = block.text.partition("\n")
    if named := re.fullmatch(r"# (?:seedbus/)?(\S+\.yaml)(?:, in part)?", first):
        assert set(rest.splitlines()) <= set((ROOT / named[1]).read_text(encoding="utf-8").splitlines())
    elif not block.why_not:
        seedbus.Scenario(
            **{
                "task": "digits",
                "algorithm": {"name": "decomfl", "arithmetic": "integer"},
                "participation": {"clients": 50} | ({} if "topology" in fields else {"deadline_s": 5}),
                "stop": {"rounds": 10},
            }
            | fields
        )


@cases("python")
def test_a_part_of_a_source_file_is_what_stands_there(page: Path, block: Block) -> None:
    if part := re.fullmatch(r"a part of (\S+)", block.why_not):
        assert block.text in (ROOT / part[1]).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("shown", "differs"),
    [
        ("printed 3 lines in 2.5 s\n", False),
        ("printed 3 lines in 3 s\n", False),
        ("printed …\n", False),
        ("…\n", False),
        ("printed 4 lines in 2.5 s\n", True),
        ("printed 3 rows in 2.5 s\n", True),
        ("printed 3 lines in 2.5 s\nand more\n", True),
        ("", True),
    ],
)
@pytest.mark.slow
def test_a_page_that_shows_something_else_is_found(shown: str, differs: bool, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '```text title="mine.txt"\nprinted 3 lines in 2.5 s\n```\n\n'
        "<!-- not run: it would fail -->\n```console\n$ false; echo no\n```\n\n"
        "<!-- run, soak -->\n```console\n$ false; echo no\n```\n\n"
        "```python\nfrom pathlib import Path\nassert Path('mine.txt').exists()\n```\n\n"
        f"```console\n$ cat \\\n    mine.txt\n{shown}```\n"
    )
    assert bool(list(follow(page, folder(tmp_path)))) is differs


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("block", "found"),
    [
        ("```console\n$ false\n```\n", []),
        ("<!-- run, output not shown -->\n```console\n$ false\n```\n", ["exit code 1\n"]),
        ("```python\nraise SystemExit(3)\n```\n", ["exit code 3\n"]),
        ("<!-- run, within 0 s -->\n```console\n$ sleep 100\n```\n", ["it had not ended after 0 s\n"]),
        ("<!-- run, soak, within 9 s -->\n```console\n$ echo a\nb\n```\n", ["a\n"]),
        (
            "<!-- run, in 2 rounds -->\n```console\n$ echo seedbus run a; true\n…\n$ echo seedbus run a\nrun\n```\n",
            ["seedbus run a --set stop.rounds=2 --set evaluation.every=2\n"],
        ),
        ("<!-- run, figures vary -->\n```console\n$ echo 3 rounds\n4 rounds\n```\n", []),
        ("<!-- table by: echo '| 1 |'; echo; echo - b -->\n\n| 2 |\n\n- b\n\nText.\n", ["| 1 |\n\n- b\n"]),
    ],
)
def test_a_block_is_run_as_the_mark_before_it_says(block: str, found: list[str], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(block)
    assert [difference.printed for difference in follow(page, folder(tmp_path), is_soak=True)] == found


def test_a_mark_that_there_is_not_is_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- run, quickly -->\n```console\n$ true\n```\n")
    with pytest.raises(ValueError, match=r"page\.md, line 1: quickly is no mark; expected output not shown"):
        list(blocks(page))


def fast(code: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([warm() / "seedbus", "-c", code], stdout=subprocess.PIPE, text=True, **options)


@pytest.mark.slow
def test_a_command_that_starts_fast_is_like_one_that_does_not(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd(), os.environ['MINE'], sys.stdin.read()); sys.exit(3)"
    with fast(code, stdin=subprocess.PIPE, cwd=tmp_path, env=os.environ | {"MINE": "my own"}) as process:
        assert process.communicate("asked")[0] == f"{tmp_path} my own asked\n"
    assert process.returncode == 3
    folders = subprocess.run(
        [warm() / "seedbus", "-c", "import sys; print(*sys.path)"], capture_output=True, text=True, check=True
    ).stdout
    assert str(ROOT / "tests") not in folders
    for arguments in (["run", "nothing"], ["--version"]):
        own, other = (
            subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
            for program in (warm() / "seedbus", Path(sys.executable).with_name("seedbus"))
        )
        assert (own.returncode, own.stdout, own.stderr) == (other.returncode, other.stdout, other.stderr)


def test_a_command_that_starts_fast_ends_with_the_program_that_asked_for_it() -> None:
    with fast("import os, time; print(os.getpid(), flush=True); time.sleep(100)") as process:
        assert process.stdout is not None
        number = int(process.stdout.readline())
        process.kill()
    wait_for(lambda: not is_alive(number))


def test_a_program_that_is_killed_before_it_asks_leaves_no_process() -> None:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(warm() / "socket"))
        server, *_ = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        children = Path(f"/proc/{server}/task/{server}/children")
        wait_for(children.read_text)
    wait_for(lambda: not children.read_text())


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_command_that_starts_fast_hears_signals_and_may_go_on(number: signal.Signals) -> None:
    code = f"""if True:
        import signal, time
        signal.signal({int(number)}, lambda *_: exit(5))
        print(flush=True)
        time.sleep(100)
    """
    with fast(code) as process:
        assert process.stdout is not None and process.stdout.readline()
        process.send_signal(number)
        assert process.wait() == 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_program_that_starts_fast_ends_as_its_command_by_a_signal(number: signal.Signals) -> None:
    with fast("import os, time; print(os.getpid(), flush=True); time.sleep(100)") as process:
        assert process.stdout is not None
        own = int(process.stdout.readline())
        assert command_of(process.pid) == own and os.getsid(own) == own
        kill(process.pid, number)
        assert process.wait() == -number and not is_alive(own)
    assert command_of(process.pid) == process.pid, "its number may be another process's now"


def test_the_processes_that_a_page_leaves_behind_are_ended(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ sleep 100 > /dev/null 2>&1 & echo $! > process\n```\n")
    assert not list(follow(page, folder(tmp_path)))
    wait_for(lambda: not is_alive(int((tmp_path / "page" / "process").read_text())))


@pytest.mark.parametrize(
    ("shown", "printed", "is_same"),
    [
        ("│ 1,199 reports │", "│ 1,198 reports │", False),
        ("│ 119.52 kB up  │", "│ 119.53 kB up  │", False),
        ("│ 12 s, 0.4953  │", "│ 3 s, 1.2e-05  │", True),
        ("│ 91.58%, 5 min │", "│ 7%, 12 min    │", True),
        ("┏━━━┳━┓ │ 0.49 │", "┏━┳━━━━┓ │ 0.5 │", True),
        ("1 run\n2 runs", "1 run\nof: 9 of 81, about 2 min left\n2 runs", True),
        ("1 run\n2 runs", "1 run\nof: 9 of 81 failed\n2 runs", False),
        ("┏━━━┳━┓ │ 0.49 │", "┏━━━━━┓ │ 0.49 │", False),
        ("0" * 32 + " " + "0" * 32, "1" * 32 + " " + "1" * 32, True),
        ("0" * 32 + " " + "0" * 32, "1" * 32 + " " + "2" * 32, False),
    ],
)
def test_bytes_and_counts_are_exact_and_equal_digests_are_equal(shown: str, printed: str, is_same: bool) -> None:
    assert is_as_shown(f"{shown}\n", f"{printed}\n", {}) is is_same
    assert is_as_shown("…\n", f"{printed}\n", {})


@pytest.mark.parametrize(
    ("shown", "printed", "is_same"),
    [
        ("loss 0.4953 after 12 s", "loss 0.4953 after 3.5 s", True),
        ("loss 0.4953 after 12 s", "loss 0.4954 after 12 s", False),
        ("91.58%, 4.7 rounds/s", "91.58%, 3.1 rounds/s", True),
        ("91.58%, 4.7 rounds/s", "91.57%, 4.7 rounds/s", False),
        ("1,019.9 s simulated", "1,019.8 s simulated", False),
        ("0" * 32, "1" * 32, False),
    ],
)
def test_on_the_page_s_processor_only_times_and_rates_may_differ(shown: str, printed: str, is_same: bool) -> None:
    assert is_as_shown(f"{shown}\n", f"{printed}\n", {})
    assert is_as_shown(f"{shown}\n", f"{printed}\n", {}, is_same_processor=True) is is_same


@pytest.mark.parametrize("module", [seedbus, plugin], ids=lambda module: module.__name__)
def test_the_python_page_describes_every_name_that_may_be_imported(module: ModuleType) -> None:
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    described = set(re.findall(rf"^::: {module.__name__}\.(\w+)$", page, re.M)) | set(re.findall(r"`([A-Z]\w+)`", page))
    assert set(module.__all__) <= described
