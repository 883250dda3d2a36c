"""Language models: what is shown and scored, what is trained, and one sentence for whatever is wrong with a folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_models
import torch
from pydantic import ValidationError
from small_language import ARTICLE, ROWS, write, write_model
from torch.nn.functional import log_softmax

from seedbus.models import DataError, Dirichlet, Iid
from seedbus.models.answers import f1, is_exact, normalised
from seedbus.models.language_model import LanguageModel
from seedbus.models.language_problem import LanguageProblem
from seedbus.models.language_text import Pair, chunks, collate
from seedbus.models.prompts import PROMPTS
from seedbus.models.text_files import SETS, read
from seedbus.models.weights import look

WAYS: dict[str, Any] = {
    "full": {},
    "lora": {"train": {"kind": "lora", "rank": 3}},
    "lora-bfloat16": {"train": {"kind": "lora"}, "dtype": "bfloat16"},
    "prefix": {"train": {"kind": "prefix", "tokens": 3}},
    "layernorm": {"train": {"kind": "layernorm"}},
    "layernorm-float16": {"train": {"kind": "layernorm"}, "dtype": "float16"},
    "options": {"loss": "options", "dataset": "cb"},
}
# what every task owes the algorithms, word for word
CONTRACT = [test for test in vars(test_models).values() if test_models.contract.mark in getattr(test, "pytestmark", [])]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make(opt: Path, texts: Path) -> Any:
    """Makes tasks on the tiny model and the tiny sets."""

    def made(dataset: str = "sst2", **fields: Any) -> LanguageModel:
        chosen = {"model": str(opt), "dataset": dataset, "data": str(texts / dataset), "answer_tokens": 4}
        return LanguageModel.model_validate(chosen | fields)

    return made


def bind(task: LanguageModel, seed: int = 1, clients: int = 2) -> LanguageProblem:
    problem = task.bind(seed=seed, clients=clients, partition=Iid())
    assert isinstance(problem, LanguageProblem)
    return problem


def hugging_face(folder: Path, pair: Pair) -> float:
    """The mean log-likelihood of an answer, by transformers' own model and one sequence at a time."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    tokens = [*pair.prompt, *pair.answer]
    with torch.no_grad():
        likely = log_softmax(model(input_ids=torch.tensor([tokens])).logits[0, :-1], dim=-1)
    picked = likely[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])]
    return float(picked[-len(pair.answer) :].mean())


def test_there_is_a_contract() -> None:
    assert len(CONTRACT) == 6


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: str(check.__name__))
@pytest.mark.parametrize("way", ["full", "lora", "layernorm-float16"])
def test_it_is_a_task_like_any_other(make: Any, way: str, check: Any) -> None:
    check(make(validation=0.3, **WAYS[way]))


# What a model is shown


def test_every_data_set_is_read_and_shown_as_mezo_shows_it(texts: Path) -> None:
    shown = {name: PROMPTS[name].show(read(name, str(texts / name))[1][0].fields) for name in SETS}
    assert shown == {
        "sst2": "a charming and often affecting journey It was",
        "rte": 'No wit.\nDoes this mean that "Wit." is true? Yes or No?\n',
        "cb": 'Suppose A film. Can we infer that "It was great"? Yes, No, or Maybe?\n',
        "boolq": "A film of the year. Is it a film?",
        "wsc": 'Bo saw Al, and He sat.\nIn the previous sentence, does the pronoun "he" refer to Al? Yes or No?\n',
        "wic": 'Does the word "wit" have the same meaning in these two sentences? Yes, No?\nNo wit.\nOf wit.\n',
        "multirc": 'A film.\nQuestion: What?\nI found this answer "a film". Is that correct? Yes or No?\n',
        "qqp": "Question 1: a film ?\nQuestion 2: a journey ?\n\nDo these two questions convey the same meaning? "
        "Yes or no?\n",
        "squad": "Title: Film\nContext: The best film of the year was a journey.\nQuestion: Which film?\nAnswer:",
    }


@pytest.mark.parametrize(
    ("name", "answers"),
    {
        "sst2": ["great", "terrible", "great", "terrible", "great", "terrible"],
        "rte": ["No", "Yes"],
        "cb": ["Yes", "No", "Maybe"],
        "boolq": ["Yes", "No"],
        "wic": ["Yes", "No"],
        "wsc": ["No", "Yes"],
        "multirc": ["Yes", "No"],
        "qqp": ["No", "Yes"],
    }.items(),
)
def test_every_class_has_the_answer_that_means_it(texts: Path, name: str, answers: list[str]) -> None:
    assert [PROMPTS[name].answers[sample.label] for sample in read(name, str(texts / name))[1]] == answers


@pytest.mark.parametrize("name", SETS)
def test_only_the_answers_own_tokens_are_scored(make: Any, name: str) -> None:
    problem = bind(make(name, validation=0))
    for sample in problem.splits["test"]:
        prompt, texts = PROMPTS[name].show(sample.fields), PROMPTS[name].answers or (sample.answers[0] + "\n",)
        for pair, text in zip(problem.encoder.pairs(sample), texts, strict=True):
            assert problem.network.tokenizer.decode(pair.answer) == PROMPTS[name].joint + text
            start, *rest = pair.prompt
            assert start == 0 and prompt.endswith(problem.network.tokenizer.decode(rest))


def test_a_long_prompt_loses_its_beginning_and_keeps_its_end(make: Any) -> None:
    whole, cut = bind(make(validation=0)), bind(make(validation=0, max_length=9))
    for sample in whole.splits["test"]:
        for long, short in zip(whole.encoder.pairs(sample), cut.encoder.pairs(sample), strict=True):
            assert short.answer == long.answer and short.length == min(9, long.length)
            assert short.prompt == [0, *long.prompt[1:][-(8 - len(long.answer)) :]]
    assert len(cut.encoder.question(cut.splits["test"][0], 4)) == 5


def test_pairs_that_differ_in_the_last_token_share_a_row() -> None:
    given = collate([Pair([5, 6], [7]), Pair([5, 6], [8]), Pair([5], [6, 9, 4])])
    assert given.ids.tolist() == [[5, 6, 0], [5, 6, 9]]
    assert given.rows.tolist() == [0, 0, 1, 1, 1] and given.columns.tolist() == [1, 1, 0, 1, 2]
    assert given.targets.tolist() == [7, 8, 6, 9, 4] and given.owners.tolist() == [0, 1, 2, 2, 2]
    assert given.lengths.tolist() == [1, 1, 3]


def test_groups_hold_every_index_once_and_no_more_tokens_than_allowed() -> None:
    lengths = [int(length) for length in np.random.Generator(np.random.Philox(1)).integers(1, 60, 200)]
    groups = chunks(lengths, 128)
    assert sorted(index for group in groups for index in group) == list(range(200))
    assert all(len(group) * max(lengths[index] for index in group) <= 128 for group in groups)
    assert chunks([500], 128) == [[0]]


# What is computed


@pytest.mark.parametrize("name", ["sst2", "cb", "squad"])
def test_an_evaluation_equals_transformers_own_one_sequence_at_a_time(opt: Path, make: Any, name: str) -> None:
    problem = bind(make(name))
    samples = problem.splits["test"]
    scores = [[hugging_face(opt, pair) for pair in problem.encoder.pairs(sample)] for sample in samples]
    found = problem.evaluate(problem.x0(), "test")
    right = [options[sample.label % len(options)] for options, sample in zip(scores, samples, strict=True)]
    assert found["loss"] == pytest.approx(-np.mean(right), rel=1e-5)
    if name != "squad":
        guesses = [int(np.argmax(options)) for options in scores]
        assert found["accuracy"] == np.mean([a == sample.label for a, sample in zip(guesses, samples, strict=True)])


def test_a_loss_is_the_mean_over_the_batch_and_the_same_alone_or_filled_up(make: Any) -> None:
    problem = bind(make(batch_size=5, validation=0))
    objective = problem.objective(1, 3)
    objective.point[:] = problem.x0()
    given, labels = objective.batch(2)
    alone = []
    for pair in range(len(labels)):
        own = given.owners == pair
        first = int(given.columns[own][0])
        prompt = given.ids[given.rows[own][0], : first + 1].tolist()
        with torch.inference_mode():
            alone.append(-float(problem.scores(collate([Pair(prompt, given.targets[own].tolist())]))[0]))
    assert len(labels) == 5 and objective.loss(2) == pytest.approx(np.mean(alone), rel=1e-5)


def test_the_loss_over_options_is_a_cross_entropy_over_scores(make: Any) -> None:
    problem = bind(make("cb", loss="options"), clients=1)
    scores, labels = torch.tensor([[0.0, 1.0, 2.0], [3.0, 3.0, 3.0]]), torch.tensor([2, 0])
    expected = [np.log(np.exp([0, 1, 2]).sum()) - 2, np.log(3)]
    assert problem.losses(scores, labels).numpy() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_the_gradient_is_the_slope_of_the_loss_in_every_direction_tried(make: Any, way: str) -> None:
    problem = bind(make(validation=0, **WAYS[way]))
    objective = problem.objective(0, 0)
    x = problem.x0()
    objective.point[:] = x
    gradient = objective.gradient(0).copy()
    assert gradient.shape == x.shape and gradient.dtype == np.float32
    along = gradient / np.linalg.norm(gradient)
    losses = []
    for sign in (1, -1):
        objective.point[:] = x + np.float32(sign * 2e-3) * along
        losses.append(objective.loss(0))
    assert (losses[0] - losses[1]) / 4e-3 == pytest.approx(np.linalg.norm(gradient), rel=0.02)
    objective.point[:] = x
    assert objective.gradient(0).tobytes() == gradient.tobytes(), "the buffer begins at zero every time"
    with pytest.raises(DataError, match="a loss of its own"):
        objective.gradient(0, criterion=len)  # type: ignore[arg-type]


def test_the_model_learns_first_order_in_a_few_steps(make: Any) -> None:
    problem = bind(make(validation=0), clients=1)
    objective = problem.objective(0, 0)
    x = problem.x0()
    for _ in range(40):
        objective.point[:] = x
        x -= np.float32(0.05) * objective.gradient(0)
    assert problem.evaluate(x, "test") == {"loss": pytest.approx(0, abs=0.3), "accuracy": 1.0}


def test_a_generated_answer_is_the_likeliest_token_after_token(make: Any) -> None:
    problem = bind(make("squad", train={"kind": "prefix"}))
    asked = problem.encoder.question(problem.splits["test"][0], 4)
    found = list(asked)
    for _ in range(4):
        with torch.inference_mode():
            last = torch.tensor([len(found) - 1])
            logits = problem.network.logits(torch.tensor([found]), torch.tensor([0]), last)
        found.append(int(logits.argmax()))
        if found[-1] in problem.encoder.ends:
            break
    assert problem.network.generate(asked, 4, problem.encoder.ends) == found[len(asked) :]


def test_f1_and_exact_match_are_the_official_ones() -> None:
    assert normalised("The  Best, film!") == "best film"
    assert is_exact("a Journey.", ["the journey"]) and not is_exact("journeys", ["journey"])
    assert f1("the best film of 1999", ["best film", "a film"]) == pytest.approx(2 * (2 / 4) * 1 / (2 / 4 + 1))
    assert f1("", ["film"]) == 0 == f1("wit", ["film"]) and f1("film", ["film"]) == 1


# What is trained


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"word_embed_proj_dim": 8, "do_layer_norm_before": False},
        {"tie_word_embeddings": False},
        {"enable_bias": False, "layer_norm_elementwise_affine": False},
    ],
    ids=str,
)
def test_the_configuration_tells_what_the_model_has(tmp_path: Path, opt: Path, changes: dict[str, Any]) -> None:
    from safetensors import safe_open

    folder = write_model(tmp_path, **changes)
    with safe_open(folder / "model.safetensors", "np") as file:
        stored = {name.removeprefix("model."): tuple(file.get_slice(name).get_shape()) for name in file.keys()}
    assert dict(look(str(folder)).shapes) == stored


def test_published_sizes_are_known_without_a_file() -> None:
    sizes = {"125m": 125_239_296, "350m": 331_196_416, "1.3b": 1_315_758_080, "2.7b": 2_651_596_800}
    for name, size in sizes.items():
        assert LanguageModel(model=f"facebook/opt-{name}").dimension == size
    lora = LanguageModel.model_validate({"train": {"kind": "lora"}})
    assert lora.dimension == 12 * 2 * 8 * (768 + 768)


def test_a_model_of_another_family_is_known_by_its_header(tmp_path: Path, texts: Path, opt: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shutil.copytree(opt, tmp_path, dirs_exist_ok=True)
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
    more: dict[str, Any] = {"num_key_value_heads": 2, "intermediate_size": 24, "vocab_size": 400}
    LlamaForCausalLM(LlamaConfig(**sizes, **more)).save_pretrained(tmp_path)
    for kind in ("full", "lora", "prefix", "layernorm"):
        fields = {"model": str(tmp_path), "data": str(texts / "sst2"), "train": {"kind": kind}}
        problem = bind(LanguageModel.model_validate(fields))
        assert problem.evaluate(problem.x0(), "test")["loss"] < 20


def test_opts_own_files_are_the_same_model(tmp_path: Path, opt: Path, make: Any) -> None:
    """As facebook/opt-* lies on the hub: vocab.json, merges.txt, and a pickle of weights without the outer prefix."""
    from safetensors.torch import load_file

    folder = shutil.copytree(opt, tmp_path / "published")
    bpe = json.loads((folder / "tokenizer.json").read_text())["model"]
    write(folder / "vocab.json", json.dumps(bpe["vocab"]))
    write(folder / "merges.txt", "#version: 0.2\n" + "".join(" ".join(merge) + "\n" for merge in bpe["merges"]))
    ends = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "</s>") | {"pad_token": "<pad>"}
    settings: dict[str, Any] = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True}
    write(folder / "tokenizer_config.json", json.dumps(ends | settings))
    weights = {name.removeprefix("model."): each for name, each in load_file(folder / "model.safetensors").items()}
    torch.save(weights, folder / "pytorch_model.bin")
    for name in ("tokenizer.json", "model.safetensors"):
        (folder / name).unlink()
    ours, theirs = bind(make()), bind(make(model=str(folder)))
    assert ours.x0().tobytes() == theirs.x0().tobytes() and ours.identity() == theirs.identity()
    assert ours.evaluate(ours.x0(), "test") == theirs.evaluate(theirs.x0(), "test")


def test_additions_change_nothing_at_first_and_the_frozen_weights_never(make: Any) -> None:
    plain, lora = bind(make()), bind(make(train={"kind": "lora"}))
    assert lora.evaluate(lora.x0(), "test") == plain.evaluate(plain.x0(), "test")
    before = lora.identity()
    x = lora.x0()
    assert 0 < np.count_nonzero(x) < x.size, "A is drawn and B is nothing"
    lora.evaluate(x + 1, "test")
    assert lora.identity() == before
    assert lora.evaluate(x + np.float32(0.1), "test") != plain.evaluate(plain.x0(), "test")


def test_half_weights_are_stored_as_such_and_computed_with_in_float32(make: Any) -> None:
    half, exact = bind(make(train={"kind": "lora"}, dtype="bfloat16")), bind(make())
    stored = {name: p for name, p in half.network._outer.named_parameters() if not p.requires_grad}
    assert {p.dtype for p in stored.values()} == {torch.bfloat16}
    assert sum(p.numel() for p in stored.values()) == exact.dimension, "the tied embedding is stored once"
    rounded = torch.from_numpy(exact.x0()).bfloat16().float().numpy()
    assert half.evaluate(half.x0(), "test") == exact.evaluate(rounded, "test")


def test_what_is_written_out_is_what_transformers_loads(opt: Path, make: Any) -> None:
    from transformers import AutoModelForCausalLM

    problem = bind(make())
    x = problem.x0() + np.float32(0.01)
    model = AutoModelForCausalLM.from_pretrained(opt)
    tensors = {name: torch.from_numpy(tensor) for name, tensor in problem.state_dict(x).items()}
    found = model.load_state_dict(tensors, strict=False)
    assert found.missing_keys == ["lm_head.weight"] and not found.unexpected_keys
    assert torch.equal(model.lm_head.weight, tensors["model.decoder.embed_tokens.weight"])


def test_the_identity_is_of_all_that_x_does_not_show(tmp_path: Path, opt: Path, texts: Path, make: Any) -> None:
    same = [bind(make(train={"kind": "lora"}), seed=3, clients=clients).identity() for clients in (1, 2)]
    assert same[0] == same[1]
    words = shutil.copytree(opt, tmp_path / "words")
    file = words / "tokenizer.json"
    known = json.loads(file.read_text())
    known["model"]["merges"].pop(0)
    file.write_text(json.dumps(known))
    more = shutil.copytree(texts / "sst2", tmp_path / "more")
    write(more / "dev.tsv", "sentence\tlabel\nno wit\t0\n")
    others = [{"model": str(write_model(tmp_path / "weights", seed=2))}, {"model": str(words)}, {"data": str(more)}]
    found = {bind(make(train={"kind": "lora"}, **fields), seed=3).identity() for fields in others}
    assert len(found | {same[0]}) == 4


# Which samples


def test_a_few_shots_are_so_many_of_each_class_and_drawn_by_seed(make: Any) -> None:
    tasks = [make(shots=2, validation=0).splits(seed)["train"] for seed in (1, 1, 2)]
    assert [sorted(sample.label for sample in each) for each in tasks] == [[0, 0, 1, 1]] * 3
    assert tasks[0] == tasks[1] != tasks[2]
    assert len(make("squad", shots=3, validation=0).splits(1)["train"]) == 3


def test_what_is_held_out_is_the_same_whatever_the_seed(make: Any) -> None:
    one, other = (make(validation=0.25).splits(seed) for seed in (1, 2))
    assert one == other and len(one["validation"]) == 6 and len(one["train"]) == 18


def test_an_evaluation_measures_no_more_samples_than_it_should(make: Any) -> None:
    few = make(evaluated=3)
    chosen = few.measured(6)
    assert chosen.size == 3 and np.array_equal(chosen, few.measured(6))
    problem = bind(few)
    problem.evaluate(problem.x0(), "test")
    assert sum(split == "test" for split, _ in problem._encoded) == 3


def test_classes_are_divided_by_dirichlet(make: Any) -> None:
    task = make(validation=0)
    problem = task.bind(seed=1, clients=3, partition=Dirichlet(alpha=0.1))
    assert sorted(problem.samples(client) for client in range(3)) == [8, 8, 8]


def test_squad_without_a_training_file_keeps_whole_articles_for_the_test(tmp_path: Path) -> None:
    articles = [ARTICLE | {"title": f"Article {number}"} for number in range(10)]
    write(tmp_path / "dev-v1.1.json", json.dumps({"data": articles}))
    train, test = read("squad", str(tmp_path))
    assert len(train) == 16 and {sample.fields["title"] for sample in test} == {"Article 0", "Article 5"}


# What may be wrong


@pytest.mark.parametrize("model", ["nobody/has-this", "no-such-folder", "not a name: ?"])
def test_a_model_that_is_nowhere_is_one_sentence_that_says_what_to_do(model: str) -> None:
    with pytest.raises(DataError, match=r"Hugging Face cache; expected a folder with config\.json.* `hf download"):
        _ = LanguageModel(model=model).dimension


def test_weights_that_were_never_fetched_are_one_sentence(
    make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(DataError, match=r"facebook/opt-125m: .*HF_HUB_OFFLINE is set .*expected a folder.*hf download"):
        bind(make(model="facebook/opt-125m"))


def test_a_model_in_the_cache_is_found_by_its_name(
    opt: Path, make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "models--some--opt"
    shutil.copytree(opt, home / "snapshots" / "abc")
    write(home / "refs" / "main", "abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.file_download.HF_HUB_CACHE", str(tmp_path), raising=False)
    assert make(model="some/opt").dimension == make().dimension


def damaged(folder: Path, opt: Path, name: str, change: Any) -> str:
    """A copy of the model, one file of which is changed: gone, replaced, cut short, or another model's."""
    shutil.copytree(opt, folder, dirs_exist_ok=True)
    if change is None:
        (folder / name).unlink()
    elif change == "hidden":
        shutil.copy(write_model(folder / "other", ffn_dim=24) / name, folder / name)
    else:
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:change] if isinstance(change, int) else change)
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
        ("model.safetensors", 100, r"found nothing that can be loaded.*expected a folder with config"),
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
        (b"\xff" * 64, r"model\.safetensors: found no header; expected a complete"),
    ],
)
def test_a_header_that_tells_nothing_is_one_sentence(tmp_path: Path, opt: Path, change: Any, sentence: str) -> None:
    folder = damaged(tmp_path, opt, "model.safetensors", change)
    write(tmp_path / "config.json", json.dumps({"model_type": "llama"}))
    with pytest.raises(DataError, match=sentence):
        _ = LanguageModel(model=folder).dimension


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
    problem = bind(make("squad", max_length=20, answer_tokens=20))
    with pytest.raises(
        DataError, match=r"20 tokens, and an answer of 20 leaves none for its prompt; expected at least"
    ):
        problem.evaluate(problem.x0(), "test")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"dtype": "bfloat16"}, "train is full, which freezes none; expected dtype: float32"),
        ({"dtype": "float16", "train": {"kind": "prefix"}}, "peft rounds"),
        ({"dataset": "squad", "loss": "options"}, "answers are text, not classes; expected loss: answer"),
        ({"dataset": "sst-2"}, "dataset"),
        ({"train": {"kind": "lora", "rank": 0}}, "rank"),
        ({"train": "lora"}, "train"),
    ],
)
def test_fields_that_make_no_sense_together_are_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        LanguageModel.model_validate(fields)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("", r"train\.jsonl: found no samples"),
        ("{", r"train\.jsonl: found a file that cannot be read"),
        ("[1]\n", r"found no such fields in row 0; expected premise, hypothesis, label for rte"),
        (
            json.dumps({"premise": "a", "label": 0}),
            r"found no field 'hypothesis' in row 0; expected premise, hypothesis",
        ),
        (json.dumps({"premise": "a", "hypothesis": "b"}), r"found no field 'label' in row 0"),
        (json.dumps(ROWS["rte"][0] | {"label": "maybe"}), r"label 'maybe' in row 0; expected entailment, not_entail"),
        (json.dumps(ROWS["rte"][0] | {"label": 2}), r"label 2 in row 0"),
        (json.dumps(ROWS["rte"][0] | {"label": -1}), r"label -1 in row 0"),
    ],
)
def test_a_damaged_data_set_is_one_sentence(tmp_path: Path, rows: str, sentence: str) -> None:
    write(tmp_path / "val.jsonl", json.dumps(ROWS["rte"][0]))
    write(tmp_path / "train.jsonl", rows)
    with pytest.raises(DataError, match=sentence):
        read("rte", str(tmp_path))


def test_a_folder_without_files_and_a_question_without_an_answer_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file of the train split; expected one of train\.tsv"):
        write(tmp_path / "val.jsonl", json.dumps(ROWS["rte"][0]))
        read("rte", str(tmp_path))
    none = json.loads(json.dumps(ARTICLE))
    none["paragraphs"][0]["qas"][1]["answers"] = []
    write(tmp_path / "squad" / "dev-v1.1.json", json.dumps({"data": [none]}))
    with pytest.raises(DataError, match="row 1 without an answer"):
        read("squad", str(tmp_path / "squad"))


def test_a_data_set_that_is_nowhere_says_where_to_put_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(DataError, match=r"no local files, and fetching aps/super_glue .*cb/ in the directory that"):
        read("cb", None)


def test_memory_that_runs_out_names_the_setting_that_takes_less(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = bind(make(batch_size=12, validation=0))
    objective = problem.objective(0, 0)

    def full(*_: Any) -> Any:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")

    monkeypatch.setattr(problem.network, "logits", full)
    with pytest.raises(DataError, match=r"no memory for \d+ sequences of \d+ tokens; expected task\.batch_size: \d+"):
        objective.loss(0)
    monkeypatch.setattr(problem.network, "logits", lambda *_: torch.zeros(1) + torch.zeros(2, 3)[:, 9])
    with pytest.raises(IndexError):
        objective.loss(0)
