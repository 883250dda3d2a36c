"""Programs with the names of Slurm's, which run the tasks of a job as processes of this machine."""

from __future__ import annotations

import sys
from pathlib import Path

PROGRAM = """#!{python} -IS
import os, signal, subprocess, sys, time
from pathlib import Path

here = Path({folder!r})
program, words = Path(sys.argv[0]).name, sys.argv[1:]
options = dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)
with (here / "asked").open("a") as log:
    log.write(" ".join([program, *words]) + "\\n")


def begin(job):
    script, variables = (job / "script").read_text(), os.environ | {{"SLURM_JOB_ID": job.name}}
    error = next(line for line in script.splitlines() if "--error=" in line).partition("=")[2].replace("%j", job.name)
    with open(error, "ab") as log:
        command = ["sh", "-c", f'sh "{{job}}/script"; echo $? > "{{job}}/code"']
        process = subprocess.Popen(command, env=variables, start_new_session=True, stdout=log, stderr=log)
    (job / "group").write_text(str(process.pid))


def state(job):
    if (job / "cancelled").exists():
        return "CANCELLED"
    if (job / "code").exists() and (code := (job / "code").read_text().strip()):
        return "COMPLETED" if code == "0" else "FAILED"
    if not (job / "group").exists() and not (here / "reason").exists():
        begin(job)
    return "RUNNING" if (job / "group").exists() else "PENDING"


def named(name):
    jobs = sorted((here / "jobs").iterdir())
    return [job for job in jobs if f"--job-name={{name}}\\n" in (job / "script").read_text()]


if program == "sbatch":
    while (here / "holds").exists():
        time.sleep(0.02)
    if (here / "refuses").exists():
        sys.exit((here / "refuses").read_text())
    job = here / "jobs" / str(len(os.listdir(here / "jobs")) + 1)
    job.mkdir()
    (job / "script").write_text(Path(words[-1]).read_text())
    state(job)
    print("Submitted batch job", job.name)
elif program == "srun":
    names = [words[words.index(option) + 1] for option in ("--output", "--error")]
    at = words.index("--kill-on-bad-exit=1") + 1
    script = (here / "jobs" / os.environ["SLURM_JOB_ID"] / "script").read_text()
    asked = dict(line[10:].split("=", 1) for line in script.splitlines() if line.startswith("#SBATCH --"))
    count = int(asked["nodes"]) * int(asked["ntasks-per-node"])
    tasks = []
    for rank in range(count):
        variables = {{"SLURM_PROCID": str(rank), "SLURM_NTASKS": str(count), "SLURMD_NODENAME": "node1"}}
        files = [open(each.replace("%j", os.environ["SLURM_JOB_ID"]).replace("%t", str(rank)), "ab") for each in names]
        tasks.append(subprocess.Popen(words[at:], env=os.environ | variables, stdout=files[0], stderr=files[1]))
    codes = [None]
    while None in codes and not any(codes):
        time.sleep(0.02)
        codes = [task.poll() for task in tasks]
    for rank, (task, code) in enumerate(zip(tasks, codes)):
        if code is None:
            task.kill()
        elif code:
            print(f"srun: error: node1: task {{rank}}: Killed", file=sys.stderr)
    sys.exit(137 if any(codes) else 0)
elif program == "squeue":
    if "--jobs" in options:
        job = here / "jobs" / options["--jobs"]
        reason = (here / "reason").read_text() if (here / "reason").exists() else "None"
        print(state(job), reason, "N/A", sep="|")
    else:
        print(*[job.name for job in named(options["--name"]) if state(job) in ("RUNNING", "PENDING")], sep="\\n")
elif program == "scancel":
    for job in named(options["--name"]) if "--name" in options else [here / "jobs" / words[-1]]:
        if state(job) in ("RUNNING", "PENDING"):
            (job / "cancelled").touch()
            if (job / "group").exists():
                os.killpg(int((job / "group").read_text()), signal.SIGKILL)
elif program == "sinfo":
    print((here / "nodes").read_text())
"""


class SlurmPrograms:
    """The programs, and how they behave.

    Files in their folder change that: `holds`: sbatch waits while it is there; `refuses`: what sbatch says instead of
    submitting; `reason`: jobs wait while it is there, for the reason that it has; `nodes`: what sinfo says.

    Args:
        folder: is made, and has them in `bin`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        for made in (folder, folder / "jobs", self.bin):
            made.mkdir()
        self.tell("nodes", "work*|2|2|(null)|4:00:00\nlong|1|8|gpu:a100:2(S:0-1)|7-00:00:00")
        for name in ("sbatch", "srun", "squeue", "scancel", "sinfo"):
            (self.bin / name).write_text(PROGRAM.format(python=sys.executable, folder=str(folder)))
            (self.bin / name).chmod(0o755)

    def tell(self, what: str, text: str | None) -> None:
        """Write one of the files, or remove it."""
        if text is None:
            (self.folder / what).unlink()
        else:
            (self.folder / what).write_text(text)

    @property
    def asked(self) -> list[str]:
        """What the programs were asked, oldest first."""
        log = self.folder / "asked"
        return log.read_text().splitlines() if log.exists() else []

    def cancelled(self) -> list[str]:
        """Return the numbers of the jobs that were cancelled."""
        return sorted(path.parent.name for path in (self.folder / "jobs").glob("*/cancelled"))
