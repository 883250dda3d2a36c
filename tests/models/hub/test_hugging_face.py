"""The task hugging-face: losses against transformers' own, the contract, what is trained, and what is proven."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from devices import DEVICE, IS_PROCESSOR
from small_hub import CLASSES, MODELS, texts, write_hub_model, write_texts
from task_contract import bind, keep_contract

from seedbus.models import DataError, File, Iid, Natural, Pathological
from seedbus.models.device import on_device
from seedbus.models.hub.problem import HubProblem

pytestmark = pytest.mark.slow

# contract: six checks each; the others differ from these in names only
KEEPING = [("vit", {"kind": "full"}), ("bert", {"kind": "head"}), ("llama", {"kind": "last-blocks"})]
TARGETS = {"vit": ["query"], "resnet": None, "bert": ["query", "value"], "distilbert": ["q_lin"], "roberta": ["dense"]}
KINDS = ("full", "head", "last-blocks", "layernorm", "lora")
TRAININGS = [(name, kind) for name in TARGETS for kind in KINDS if kind != "lora" or TARGETS[name] is not None]


def two_clients(task: Any) -> Any:
    problem = bind(task, clients=2)
    assert isinstance(problem, HubProblem)
    return problem


@pytest.mark.parametrize(("name", "train"), KEEPING, ids=[name for name, _ in KEEPING])
def test_the_task_keeps_the_contract_of_tasks(make_hub: Any, name: str, train: Any) -> None:
    keep_contract(make_hub(name, train=train, validation=0.25))


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_of_a_batch_is_what_transformers_computes_by_itself(make_hub: Any, name: str) -> None:
    import transformers

    task = make_hub(name, batch_size=3)
    problem = two_clients(task)
    objective = problem.objective(0, 0)
    objective.point[:] = problem.x0()
    ((_, (items, labels)),) = objective.parts(0)
    classes = {"image-classification": "ImageClassification", "sequence-classification": "SequenceClassification"}
    kind = getattr(transformers, f"AutoModelFor{classes.get(task.head, 'CausalLM')}")
    model = kind.from_pretrained(task.model, local_files_only=True).eval()
    alone = []
    for item, label in zip(items, labels, strict=True):  # one by one, so without any padding
        with torch.inference_mode():
            if task.head == "image-classification":
                output = model(pixel_values=item, labels=label[None])
            elif task.head == "causal-lm":
                ids = torch.tensor([[*item.prompt, *item.answer]])
                output = model(input_ids=ids, labels=ids)
            else:
                tensors = {key: torch.tensor([values]) for key, values in item.items()}
                output = model(**tensors, labels=label[None])
        alone.append(float(output.loss))
    assert objective.loss(0) == pytest.approx(np.mean(alone), rel=2e-5)


@pytest.mark.parametrize("name", ["resnet", "distilbert", "gpt2"])
def test_evaluation_is_a_mean_over_samples_and_the_perplexity_is_that_of_all_tokens(make_hub: Any, name: str) -> None:
    problem = two_clients(make_hub(name))
    metrics = problem.evaluate(problem.x0(), "test")
    items = [problem.network.encode(row) for row in problem.splits["test"]]
    labels = torch.tensor([row.label for row in problem.splits["test"]])
    with torch.inference_mode():
        losses = [float(problem.network.loss([item], label[None])) for item, label in zip(items, labels, strict=True)]
    assert metrics["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    if name == "gpt2":
        lengths = [len(item.answer) for item in items]
        assert len(set(lengths)) > 1
        assert metrics["perplexity"] == pytest.approx(np.exp(np.average(losses, weights=lengths)), rel=1e-5)
    else:
        with torch.inference_mode():
            predicted = torch.cat([problem.network.logits([item]) for item in items]).argmax(dim=1)
        assert metrics["accuracy"] == float((predicted == labels).double().mean())


@pytest.mark.few(12, slow=0)  # of which each model and each kind has some
@pytest.mark.parametrize(("name", "kind"), TRAININGS)
def test_the_file_says_how_many_weights_are_trained_and_the_gradient_is_the_slope(
    make_hub: Any, name: str, kind: str
) -> None:
    train = {"kind": kind} | ({"targets": TARGETS[name]} if kind == "lora" else {})
    problem = two_clients(make_hub(name, train=train))  # compares the header's count with the module's
    objective = problem.objective(0, 0)
    x = problem.x0()
    objective.point[:] = x
    gradient = objective.gradient(0).copy()
    along = gradient / np.linalg.norm(gradient)
    losses = []
    for sign in (1, -1):
        objective.point[:] = x + np.float32(sign * 3e-3) * along
        losses.append(objective.loss(0))
    assert (losses[0] - losses[1]) / 6e-3 == pytest.approx(np.linalg.norm(gradient), rel=0.05)


def test_what_is_trained_is_named_as_in_the_models_file_and_can_be_loaded_again(make_hub: Any, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file
    from transformers import AutoModelForImageClassification

    task = make_hub("vit", train={"kind": "last-blocks"})
    problem = two_clients(task)
    stored = load_file(Path(task.model) / "model.safetensors")
    trained = problem.state_dict(problem.x0() + 1)
    assert {name.split(".")[3] for name in trained if name.startswith("vit.")} == {"1"}
    assert {name for name in trained if not name.startswith("vit.")} == {"classifier.weight", "classifier.bias"}
    assert all(np.array_equal(tensor, stored[name] + 1) for name, tensor in trained.items())
    saved = shutil.copytree(task.model, tmp_path / "saved")
    save_file(stored | trained, saved / "model.safetensors", metadata={"format": "pt"})
    model = AutoModelForImageClassification.from_pretrained(saved, local_files_only=True)
    assert torch.equal(model.classifier.bias, torch.from_numpy(trained["classifier.bias"]))
    assert torch.equal(
        model.vit.layers[1].attention.q_proj.bias,
        torch.from_numpy(trained["vit.encoder.layer.1.attention.attention.query.bias"]),
    )


def test_statistics_of_batch_norm_are_frozen_and_another_file_with_other_statistics_is_told_apart(
    make_hub: Any, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    task = make_hub("resnet")
    problem = two_clients(task)
    before = {name: buffer.clone() for name, buffer in problem.trained.module.named_buffers()}
    identity = problem.identity()
    objective = problem.objective(0, 0)
    objective.point[:] = problem.x0()
    objective.loss(0)
    objective.gradient(0)
    problem.evaluate(problem.x0(), "train")
    assert before.keys() and all(torch.equal(b, before[name]) for name, b in problem.trained.module.named_buffers())
    other = shutil.copytree(task.model, tmp_path / "other")
    tensors = load_file(other / "model.safetensors")
    name = next(name for name in tensors if name.endswith("running_var"))
    save_file(tensors | {name: tensors[name] * 1.5}, other / "model.safetensors", metadata={"format": "pt"})
    changed = two_clients(make_hub("resnet", model=str(other)))
    assert np.array_equal(changed.x0(), problem.x0()) and changed.identity() != identity
    assert two_clients(task).identity() == identity


@pytest.mark.parametrize("name", ["vit", "bert", "gpt2"])
def test_frozen_weights_samples_and_processors_are_proven(make_hub: Any, name: str, tmp_path: Path) -> None:
    train = {"kind": "layernorm"}
    task = make_hub(name, train=train)
    identity = two_clients(task).identity()
    write_hub_model(tmp_path / "other", name, seed=5)
    assert two_clients(make_hub(name, train=train, model=str(tmp_path / "other"))).identity() != identity
    data = shutil.copytree(task.dataset, tmp_path / "data")
    if name == "vit":
        shutil.copy(data / "test" / "cat" / "0.png", data / "train" / "cat" / "0.png")
    else:
        table = (data / "train.csv").read_text(encoding="utf-8")
        (data / "train.csv").write_text(table.replace("charming", "boring"), encoding="utf-8")
    assert two_clients(make_hub(name, train=train, dataset=str(data))).identity() != identity
    model = shutil.copytree(task.model, tmp_path / "model")
    if name == "vit":
        settings = model / "preprocessor_config.json"
        settings.write_text(settings.read_text().replace("0.5", "0.4"))
        assert two_clients(make_hub(name, train=train, model=str(model))).identity() != identity


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet", "disk"])
def test_every_format_gives_the_same_problem(make_hub: Any, tmp_path: Path, form: str) -> None:
    first = two_clients(make_hub("bert"))
    other = two_clients(make_hub("bert", dataset=str(write_texts(tmp_path / "data", form))))
    assert [row.label for row in other.splits["train"]] == [row.label for row in first.splits["train"]]
    assert other.identity() == first.identity()


def test_images_in_folders_and_in_parquet_are_the_same_problem(make_hub: Any, tmp_path: Path) -> None:
    import datasets

    task = make_hub("vit")
    splits = datasets.load_dataset("imagefolder", data_dir=task.dataset, cache_dir=str(tmp_path / "cache"))
    for split, table in splits.items():
        table.to_parquet(tmp_path / "data" / f"{split}.parquet")
    stored = two_clients(make_hub("vit", dataset=str(tmp_path / "data")))
    assert stored.identity() == two_clients(task).identity()


def test_names_of_classes_are_the_models_own_if_it_knows_them_and_else_in_order(make_hub: Any, tmp_path: Path) -> None:
    columns = {"text": "sentence", "label": "word"}
    known: dict[str, Any] = {"id2label": {0: "good", 1: "bad"}, "label2id": {"good": 0, "bad": 1}}
    folder = str(write_hub_model(tmp_path / "model", "bert", **known))
    sorted_names = two_clients(make_hub("bert", columns=columns, validation=0)).splits["train"]
    own_names = two_clients(make_hub("bert", columns=columns, validation=0, model=folder)).splits["train"]
    right = [row["label"] for row in texts(24)]  # 1 is good, and "bad" is before "good"
    assert [row.label for row in sorted_names] == right and [row.label for row in own_names] == [1 - r for r in right]
    reordered: dict[str, Any] = {
        "id2label": dict(enumerate(reversed(CLASSES))),
        "label2id": {n: i for i, n in enumerate(CLASSES[::-1])},
    }
    folder = str(write_hub_model(tmp_path / "vit", "vit", **reordered))
    assert [row.label for row in two_clients(make_hub("vit", model=folder)).splits["test"]] == [2, 2, 1, 1, 0, 0]


def test_a_pair_of_texts_is_read_as_a_pair(make_hub: Any) -> None:
    columns = {"text": "sentence", "text_pair": "other", "label": "label"}
    problem = two_clients(make_hub("bert", columns=columns))
    row = problem.splits["train"][0]
    tokens = problem.network.encode(row)["input_ids"]
    alone = problem.network.processor(row.content["sentence"])["input_ids"]
    assert len(tokens) > len(alone) and tokens[: len(alone)] == alone


def test_clients_hold_classes_owners_or_rows_of_a_file(make_hub: Any, tmp_path: Path) -> None:
    task = make_hub("bert", columns={"text": "sentence", "label": "label", "owner": "author"}, validation=0)
    assert task.has_owners and not make_hub("bert").has_owners
    persons = task.bind(seed=1, clients=3, partition=Natural())
    assert [{persons.splits["train"][i].content["author"] for i in part} for part in persons.parts] == [
        {"author 0"},
        {"author 1"},
        {"author 2"},
    ]
    tested = persons.owned("test")
    assert sum(part.size for part in tested) == sum(each.owner in (0, 1, 2) for each in persons.splits["test"]) > 0
    for author, part in enumerate(tested):
        assert {persons.splits["test"][i].content["author"] for i in part} <= {f"author {author}"}
    one_class = task.bind(seed=1, clients=2, partition=Pathological(classes=1))
    assert [{persons.splits["train"][i].label for i in part} for part in one_class.parts] in ([{0}, {1}], [{1}, {0}])
    (tmp_path / "who.csv").write_text("client,row\n0,3\n1,5\n1,0\n")
    by_file = task.bind(seed=1, clients=2, partition=File(file=str(tmp_path / "who.csv")))
    assert [part.tolist() for part in by_file.parts] == [[3], [0, 5]]
    assert by_file.identity() != persons.identity() and by_file.owned("test") is None


def test_labels_and_owners_are_the_same_in_any_spelling(make_hub: Any, tmp_path: Path) -> None:
    """A column of whole numbers in one split and of floating-point ones in the other."""
    for name, ones, people in (("plain", ["1", "1"], ["1", "1"]), ("other", ["1.0", "1"], ["1", "1.0"])):
        (tmp_path / name).mkdir()
        for split, one, person in zip(("train", "test"), ones, people, strict=True):
            zero = "0.0" if one == "1.0" else "0"
            rows = "".join(f"a film {row},{(zero, one)[row % 2]},{('2', person)[row // 2 % 2]}\n" for row in range(12))
            (tmp_path / name / f"{split}.csv").write_text(f"sentence,label,author\n{rows}")
    columns = {"text": "sentence", "label": "label", "owner": "author"}
    tasks = [
        make_hub("bert", dataset=str(tmp_path / name), columns=columns, validation=0) for name in ("plain", "other")
    ]
    first, other = (task.bind(seed=1, clients=2, partition=Natural()) for task in tasks)
    assert [[row.label for row in rows] for rows in first.splits.values()] == [
        [row.label for row in rows] for rows in other.splits.values()
    ]
    assert [part.tolist() for part in other.owned("test")] == [part.tolist() for part in first.owned("test")]
    assert other.client_names() == first.client_names() == ["1", "2"]
    division = tasks[1].division(seed=1, clients=1, partition=Natural())
    assert division.notes == [
        "partition natural: 1 of 2 owners are clients, so nobody trains on 6 of 12 training samples"
    ]


def test_an_owner_without_a_name_is_refused_and_alike_ones_are_noted(make_hub: Any, tmp_path: Path) -> None:
    columns = {"text": "sentence", "label": "label", "owner": "author"}
    for name, nobody in (("named", "anna"), ("blank", " ")):
        (tmp_path / name).mkdir()
        for split in ("train", "test"):
            rows = "".join(
                f'{{"sentence": "a {row}", "label": {row % 2}, "author": "{("Anna", nobody)[row // 2 % 2]}"}}\n'
                for row in range(12)
            )
            (tmp_path / name / f"{split}.jsonl").write_text(rows)
    named, blank = (make_hub("bert", dataset=str(tmp_path / name), columns=columns) for name in ("named", "blank"))
    notes = named.division(seed=1, clients=2, partition=Natural()).notes
    assert notes == [
        "partition natural has the owners 'Anna' and 'anna', each of its own; spell them alike if they are one"
    ]
    with pytest.raises(
        DataError, match=r"split train: found nothing in column author of row 2; expected the owner of e"
    ):
        blank.division(seed=1, clients=2, partition=Natural())


def test_shots_are_those_of_the_partition_so_that_a_division_is_one_of_the_same_samples(make_hub: Any) -> None:
    task = make_hub("bert", shots=5, validation=0)

    def held(seed: int, own: int | None) -> list[list[int]]:
        problem = task.bind(seed=seed, clients=2, partition=Iid(seed=own))
        return [[problem.splits["train"][sample].number for sample in part] for part in problem.parts]

    assert held(1, 3) == held(2, 3) == held(3, None) != held(1, None)


def test_a_validation_split_of_the_data_set_is_used_as_it_is(make_hub: Any, hub_data: Any, tmp_path: Path) -> None:
    data = shutil.copytree(hub_data["texts"], tmp_path / "data")
    shutil.copy(data / "test.csv", data / "validation.csv")
    task = make_hub("bert", dataset=str(data), splits={"validation": "validation"}, validation=0)
    assert task.may_hold_out and not make_hub("bert", validation=0).may_hold_out
    problem = two_clients(task)
    assert {split: len(rows) for split, rows in problem.splits.items()} == {"train": 24, "validation": 6, "test": 6}
    assert problem.evaluate(problem.x0(), "validation") == problem.evaluate(problem.x0(), "test")


def test_blank_texts_are_no_samples_of_a_causal_model(make_hub: Any, hub_data: Any, tmp_path: Path) -> None:
    data = shutil.copytree(hub_data["texts"], tmp_path / "data")
    with (data / "train.csv").open("a") as file:
        file.write('"  ",,0,bad,author 1\n')
    columns = {"text": "sentence"}
    assert len(two_clients(make_hub("gpt2", dataset=str(data), columns=columns, validation=0)).splits["train"]) == 24


def test_a_classifier_without_a_padding_token_has_the_losses_of_texts_alone(make_hub: Any, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    task = make_hub("gpt2-classifier")
    folder = shutil.copytree(task.model, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    ours, padded = two_clients(task.model_copy(update={"model": str(folder)})), two_clients(task)
    assert ours.network.processor.pad_token_id is None
    for problem in (ours, padded):
        problem.point[:] = problem.x0()
    assert ours.objective(0, 0).loss(0) == pytest.approx(padded.objective(0, 0).loss(0), rel=1e-6)


@pytest.mark.few(10, slow=0)  # of which each model and each number of bits has some
@pytest.mark.parametrize("name", ["vit", "resnet", "bert", "distilbert", "roberta", "gpt2-classifier", "llama"])
@pytest.mark.parametrize("bits", [{"dtype": "bfloat16"}, {"dtype": "nf4"}, {"compute_dtype": "bfloat16"}], ids=str)
def test_a_model_in_fewer_bits_is_near_the_whole_one_and_alike_in_every_process(
    make_hub: Any, name: str, bits: dict[str, str]
) -> None:
    if "nf4" in bits.values():
        pytest.importorskip("bitsandbytes", reason="quantised weights need bitsandbytes")
    train = {"kind": "last-blocks"}
    whole = two_clients(make_hub(name, train=train, validation=0))
    task = make_hub(name, train=train, validation=0, **bits)
    here, again = two_clients(task), two_clients(task)
    with on_device(DEVICE):
        there = two_clients(task)
    rounded = torch.from_numpy(whole.x0()).bfloat16().float().numpy() if "dtype" in bits else whole.x0()
    assert np.array_equal(here.x0(), rounded) and here.identity() == again.identity() == there.identity()
    losses = []
    for problem in (whole, here, there):
        np.copyto(problem.point, rounded)
        losses.append(problem.objective(0, 0).loss(0))
    assert losses[0] != losses[1] == pytest.approx(losses[0], rel=0.5)
    assert losses[2] == (losses[1] if IS_PROCESSOR else pytest.approx(losses[1], rel=0.05))
    gradient = here.objective(0, 0).gradient(0)
    assert gradient.dtype == np.float32 and np.linalg.norm(gradient) > 0
    assert again.objective(0, 0).loss_at(0, lambda span, out: np.copyto(out, rounded[span])) == losses[1]
    metrics = again.evaluate_at(lambda span, out: np.copyto(out, rounded[span]), "test")
    assert metrics == here.evaluate(rounded, "test")
    frozen = [p for p in here.trained.module.parameters() if not p.requires_grad]
    assert {p.dtype for p in frozen} <= ({torch.bfloat16, torch.uint8} if "dtype" in bits else {torch.float32})


@pytest.mark.parametrize("name", ["vit", "resnet", "distilbert", "roberta", "gpt2-classifier"])
def test_a_classifiers_head_computes_in_float32_when_its_body_does_not(make_hub: Any, name: str) -> None:
    problem = two_clients(make_hub(name, train={"kind": "head"}, compute_dtype="bfloat16"))
    types: dict[str, set[torch.dtype]] = {"head": set(), "body": set()}
    trained = {id(parameter) for parameter in problem.trained.module.parameters() if parameter.requires_grad}
    for layer in problem.trained.module.modules():
        if (weight := getattr(layer, "weight", None)) is not None and weight.dim() in (2, 4):
            found = types["head" if id(weight) in trained else "body"]
            layer.register_forward_hook(lambda _, __, output, found=found: found.add(output.dtype))
    problem.point[:] = problem.x0()
    problem.objective(0, 0).loss(0)
    assert types["head"] == {torch.float32} and torch.bfloat16 in types["body"]
    assert problem.resolution > two_clients(make_hub(name)).resolution


def test_fewer_bits_are_for_frozen_weights(make_hub: Any) -> None:
    with pytest.raises(ValueError, match="train is full, which freezes none; expected dtype: float32"):
        make_hub("vit", train={"kind": "full"}, dtype="nf4")
    head = make_hub("bert", train={"kind": "head"})
    assert "task.dtype: bfloat16" in head.memory_saving_settings()
