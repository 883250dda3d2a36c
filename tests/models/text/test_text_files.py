"""What is read from the files of data sets and models: quotes and accents, shards, norms, what is no weight."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_language import bind, write

from seedbus.models.errors import DataError
from seedbus.models.partitions.file import File
from seedbus.models.tasks.language_model import LanguageModel
from seedbus.models.text.files import SETS, read
from seedbus.models.text.shapes import is_norm
from seedbus.models.text.training import LayerNorm, Prefix
from seedbus.models.text.weights import Pretrained, inspect_pretrained, source_options, weights_format


def test_a_quote_and_an_accent_in_a_table_are_text_and_an_empty_line_of_json_is_nothing(tmp_path: Path) -> None:
    """The published tables have single quotation marks, which end nothing."""
    rows = ['"a naïve film\t1', 'no wit"\t0', '"“great” fun"\t1']
    for name in ("train", "dev"):
        write(tmp_path / f"{name}.tsv", "\n".join(["sentence\tlabel", *rows]) + "\n")
    train, test = read("sst2", str(tmp_path))
    found = [(sample.fields["sentence"], sample.label) for sample in train]
    assert train == test and found == [('"a naïve film', 1), ('no wit"', 0), ('"“great” fun"', 1)]
    lines = [json.dumps({"premise": "A.", "hypothesis": "B.", "label": label}) for label in ("entailment", 1)]
    for name in ("train", "val"):
        write(tmp_path / "rte" / f"{name}.jsonl", "\n\n".join(lines) + "\n\n")
    assert [sample.label for sample in read("rte", str(tmp_path / "rte"))[0]] == [0, 1]


def test_broken_lines_of_the_published_qqp_are_left_out_and_other_labels_are_refused(tmp_path: Path) -> None:
    head = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    rows = ["7\t1\t2\tWhy?\tHow so?\t1", "8\t3\t4\tWhat is", "it?\tWhich one?\t0", "9\t5\t6\tWho?\tWhom?\t0"]
    for name in ("train", "dev"):
        write(tmp_path / f"{name}.tsv", "\n".join([head, *rows]) + "\n")
    train, test = read("qqp", str(tmp_path))
    assert train == test and [(each.fields["question1"], each.label) for each in train] == [("Why?", 1), ("Who?", 0)]
    write(tmp_path / "train.tsv", "\n".join([head, *rows, "9\t5\t6\tWho?\tWhom?\tyes"]) + "\n")
    with pytest.raises(DataError, match=r"train\.tsv: found label 'yes' in row 4; expected 0, 1 for qqp"):
        read("qqp", str(tmp_path))


def test_the_hubs_development_split_is_the_test_and_its_data_are_of_one_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The labels of its test splits are not published."""
    asked: list[Any] = []

    def load_dataset(name: str, configuration: str | None, *, revision: str) -> Any:
        asked.append((name, configuration, revision))
        row = {field: "a" for field in SETS["rte"].fields}
        splits = {"train": 0, "validation": 1, "test": -1}
        return {split: [{**row, "label": label}] for split, label in splits.items()}

    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    train, test = read("rte", None)
    assert [sample.label for sample in train + test] == [0, 1]
    ((name, configuration, revision),) = asked
    assert (name, configuration) == ("aps/super_glue", "rte") and re.fullmatch("[0-9a-f]{40}", revision)


def test_only_published_models_are_downloaded_at_one_commit_and_no_code_or_pickled_program_is_loaded() -> None:
    for model in ("facebook/opt-125m", "nobody/opt", "a-folder"):
        options, is_published = source_options(model), model.startswith("facebook")
        assert options["trust_remote_code"] is False and options["local_files_only"] is not is_published
        assert bool(re.fullmatch("[0-9a-f]{40}", str(options.get("revision")))) is is_published
        assert weights_format(model) == {"use_safetensors": not is_published, "weights_only": True}


def sharded(folder: Path, config: dict[str, Any], *shards: dict[str, list[int]]) -> str:
    """Write a model of another family than OPT in several files, as headers only, and return its folder."""
    names = {name: f"model-{number}.safetensors" for number, shard in enumerate(shards) for name in shard}
    for number, shard in enumerate(shards):
        header = json.dumps({"__metadata__": {}} | {name: {"shape": shape} for name, shape in shard.items()}).encode()
        (folder / f"model-{number}.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    write(folder / "model.safetensors.index.json", json.dumps({"weight_map": names}))
    write(folder / "config.json", json.dumps({"model_type": "gpt2"} | config))
    return str(folder)


@pytest.mark.parametrize(("config", "tied"), [({}, True), ({"tie_word_embeddings": False}, False)], ids=str)
def test_weights_of_all_files_count_and_masks_positions_and_a_tied_head_do_not(
    tmp_path: Path, config: dict[str, Any], tied: bool
) -> None:
    first = {"wte.weight": [7, 3], "h.0.attn.bias": [1, 1, 9, 9], "h.0.attn.masked_bias": [1], "h.0.attn.c.bias": [5]}
    last = {"h.0.ln_1.weight": [3], "ln_f.bias": [3], "lm_head.weight": [7, 3], "rotary.inv_freq": [4]}
    known = inspect_pretrained(sharded(tmp_path, config, first, last))
    assert known.size == 7 * 3 + 5 + 3 + 3 + (0 if tied else 7 * 3)
    assert LayerNorm().count(known) == 6


def test_norms_are_known_by_the_names_that_families_give_them() -> None:
    norms = [
        "h.0.ln_1.weight",
        "ln_f.bias",
        "l.0.input_layernorm.weight",
        "l.0.self_attn_layer_norm.bias",
        "norm1.weight",
    ]
    others = ["h.0.mlp.weight", "l.0.aln.weight", "lnear.weight", "norm", "norms.proj.weight", "embed.LN.x.weight"]
    assert [name for name in norms + others if is_norm(name)] == norms


def test_a_prefix_has_keys_and_values_of_the_heads_that_have_them() -> None:
    sizes = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 4}
    for more, width in (({}, 4 * 4), ({"num_key_value_heads": 2}, 2 * 4), ({"head_dim": 8}, 4 * 8)):
        assert Prefix(tokens=3).count(Pretrained(sizes | more, {})) == 2 * 2 * 3 * width


def test_a_model_in_a_folder_of_the_home_is_found(opt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(opt.parent))
    assert LanguageModel(model=f"~/{opt.name}").dimension == LanguageModel(model=str(opt)).dimension


def test_a_tokenizer_with_another_start_token_is_another_tokenizer(make: Any) -> None:
    """Every sequence begins with it; the vocabulary and the tokens of a text do not show it."""
    problem = bind(make())
    before = problem.identity()
    problem.network.tokenizer.bos_token = "<pad>"
    assert problem.identity() != before


@pytest.mark.parametrize(
    ("dtype", "narrower"),
    {"float32": "bfloat16", "bfloat16": "nf4", "float16": "nf4", "int8": "nf4", "nf4": ""}.items(),
)
def test_the_next_narrower_type_is_suggested_for_frozen_weights(make: Any, dtype: str, narrower: str) -> None:
    named = [each for each in make(train={"kind": "lora"}, dtype=dtype).memory_saving_settings() if "dtype" in each]
    assert named == ([f"task.dtype: {narrower}"] if narrower else [])


def test_a_division_that_a_file_gives_is_part_of_what_a_process_proves(make: Any, tmp_path: Path) -> None:
    """Samples and seed do not decide it, and each process reads its own file."""
    task, identities = make(train={"kind": "lora"}, validation=0.25), []
    for number, rows in enumerate(("0,0\n1,1", "0,1\n1,0")):
        file = tmp_path / f"{number}.csv"
        write(file, "client,row\n" + rows + "\n" + "".join(f"{row % 2},{row}\n" for row in range(2, 24)))
        identities.append(task.bind(seed=1, clients=2, partition=File(file=str(file))).identity())
    assert identities[0] != identities[1]
