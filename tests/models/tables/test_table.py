"""A table as a task: how its columns become numbers, what it is divided by, and a sentence for every mistake in it."""

from __future__ import annotations

import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError
from sklearn import datasets
from small_data import people_table
from worlds import go, scenario

from seedbus.models import ByColumn, DataError, Dirichlet, Iid, Natural, Pathological, Shards
from seedbus.models.data import untrusted
from seedbus.models.data.samples import Images
from seedbus.models.tables.encoding import encode
from seedbus.models.tables.new_rows import inputs_of
from seedbus.models.tasks.table import Table


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDBUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SEEDBUS_DATA", raising=False)
    monkeypatch.setattr(untrusted, "ALWAYS_UNPACKED", 2**24)  # smaller, so that tests are quick


def written(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def people(folder: Path, **fields: Any) -> Table:
    people_table(folder / "people.csv")
    return Table(**{"file": str(folder / "people.csv"), "target": "city", "owner": "person", **fields})


def rows_of(part: Images) -> NDArray[np.int64]:
    assert part.rows is not None
    return part.rows


def test_numbers_are_standardised_on_the_training_part_and_texts_are_one_hot(tmp_path: Path) -> None:
    encoded = encode(people(tmp_path))
    assert encoded.facts.inputs == ["height", "age", "pet=", "pet=cat", "pet=dog"]
    assert encoded.facts.classes == ["Aarhus", "Bergen", "Cork"]
    frame = pandas.read_csv(tmp_path / "people.csv", keep_default_na=False)
    train, test = (frame.iloc[rows_of(part)] for part in (encoded.train, encoded.test))
    assert sorted([*train.index, *test.index]) == list(range(48)) and len(test) == 10
    for part, rows in ((encoded.train, train), (encoded.test, test)):
        numbers = (rows[["height", "age"]] - train[["height", "age"]].mean()) / train[["height", "age"]].std(ddof=0)
        assert np.allclose(part.pixels[:, :2], numbers, atol=1e-6)
        assert np.array_equal(part.pixels[:, 2:], np.stack([rows["pet"] == pet for pet in ("", "cat", "dog")], axis=1))
        assert [encoded.facts.classes[label] for label in part.labels] == rows["city"].tolist()
        assert part.owners is not None and part.owners.tolist() == rows["person"].tolist()


def test_a_column_of_one_value_becomes_zeros_whatever_the_value(tmp_path: Path) -> None:
    rows = "".join(f"0.7,{row},{'ab'[row % 2]}\n" for row in range(53))
    (tmp_path / "test.csv").write_text("scale,number,class\n0.8,1,a\n")
    task = Table(
        file=written(tmp_path / "train.csv", "scale,number,class\n" + rows),
        test_file=str(tmp_path / "test.csv"),
        target="class",
    )
    encoded = encode(task)  # the mean of 53 times 0.7, rounded, is another number
    assert not encoded.train.pixels[:, 0].any()
    assert encoded.test.pixels[0, 0] == pytest.approx(0.1)
    with pytest.raises(DataError, match=r"column scale: found 0\.7 in every row of the training part; expected a targ"):
        encode(task.model_copy(update={"target": "scale"}))


def test_csv_packed_csv_other_separators_and_parquet_give_the_same_bits(tmp_path: Path) -> None:
    plain = people(tmp_path)
    text = (tmp_path / "people.csv").read_bytes()
    frame = pandas.read_csv(tmp_path / "people.csv", keep_default_na=False)
    frame["pet"] = frame["pet"].astype("category")
    frame.to_parquet(tmp_path / "people.parquet")
    same = [
        plain.model_copy(update={"file": written(tmp_path / "people.csv.gz", gzip.compress(text))}),
        plain.model_copy(
            update={"file": written(tmp_path / "bom.csv", b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))}
        ),
        plain.model_copy(
            update={"file": written(tmp_path / "tab.tsv", text.replace(b",", b" \t ")), "separator": "\t"}
        ),
        plain.model_copy(update={"file": str(tmp_path / "people.parquet")}),
    ]
    digests = {encode(task).train.digest() + encode(task).test.digest() for task in (plain, *same)}
    assert len(digests) == 1


def test_numbers_as_texts_are_the_same_in_parquet_also_if_they_are_long_or_missing(tmp_path: Path) -> None:
    codes = [None if row % 5 == 0 else 2**60 + row % 3 for row in range(40)]
    rows = "".join(f"{'' if code is None else code},{row % 2}\n" for row, code in enumerate(codes))
    plain = Table(file=written(tmp_path / "t.csv", "code,y\n" + rows), target="y", categorical=["code"])
    columns = {"code": pyarrow.array(codes, pyarrow.int64()), "y": pyarrow.array([row % 2 for row in range(40)])}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    parquet = plain.model_copy(update={"file": str(tmp_path / "t.parquet")})
    assert encode(plain).facts.inputs == ["code=", *(f"code={2**60 + code}" for code in range(3))]
    assert (
        encode(plain).facts == encode(parquet).facts and encode(plain).train.digest() == encode(parquet).train.digest()
    )
    fractions = [None if row % 5 == 0 else row % 3 / 2 for row in range(40)]
    pyarrow.parquet.write_table(pyarrow.table(columns | {"code": pyarrow.array(fractions)}), tmp_path / "f.parquet")
    parquet = parquet.model_copy(update={"file": str(tmp_path / "f.parquet")})
    assert encode(parquet).facts.inputs == ["code=", "code=0", "code=0.5", "code=1"]


def test_owners_whose_numbers_are_too_long_are_not_taken_for_each_other(tmp_path: Path) -> None:
    rows = "".join(f"{row},{2**60 + row % 3},{row % 2}\n" for row in range(40))
    task = Table(file=written(tmp_path / "t.csv", "a,code,y\n" + rows), target="y", validation=0)
    texts, by_code = task.model_copy(update={"categorical": ("code",)}), ByColumn(column="code")
    names = [str(2**60 + number) for number in range(3)]
    assert texts.division(seed=1, clients=3, partition=by_code).clients == names
    owned = texts.model_copy(update={"owner": "code"})
    assert owned.division(seed=1, clients=3, partition=Natural()).clients == names
    sentence = (
        r"line 2, column code: found about 1152921504606846976, which may be several numbers; expected less than 2"
    )
    with pytest.raises(DataError, match=sentence):
        encode(task.model_copy(update={"owner": "code"}))
    with pytest.raises(DataError, match=sentence):
        task.division(seed=1, clients=1, partition=by_code)


def test_another_cell_gives_another_proof_and_so_does_another_holder(tmp_path: Path) -> None:
    task = people(tmp_path)

    def proof(task: Table, partition: Any = Iid()) -> bytes:  # noqa: B008
        problem: Any = task.bind(seed=1, clients=3, partition=partition)
        identity: bytes = problem.identity()
        return identity

    first, natural = proof(task), proof(task, Natural())
    assert proof(task) == first != natural
    text = (tmp_path / "people.csv").read_text()
    height = text.split("\n")[7].split(",")[0]
    written(tmp_path / "people.csv", text.replace(height, "151.5", 1))
    assert proof(task) != first
    written(tmp_path / "people.csv", text.replace(",0\n", ",1\n"))  # one person's rows are another's
    assert proof(task) == first and proof(task, Natural()) != natural


def test_a_test_file_is_the_test_set_and_a_text_that_only_it_has_is_zeros(tmp_path: Path) -> None:
    train = written(tmp_path / "train.csv", "a,b,y\n1,u,p\n3,v,q\n5,u,q\n")
    test = written(tmp_path / "test.csv", "y,b,a\nq,w,7\n")
    encoded = encode(Table(file=train, test_file=test, target="y"))
    assert encoded.train.labels.tolist() == [0, 1, 1] and encoded.test.labels.tolist() == [1]
    assert encoded.test.pixels.tolist() == [[pytest.approx(4 / np.sqrt(8 / 3)), 0, 0]]
    assert encoded.train.pixels[1].tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ("1 2 3", "classification"),
        ("1 2 2.5", "regression"),
        (" ".join(map(str, range(20))), "classification"),
        (" ".join(map(str, range(21))), "regression"),
        ("x y x", "classification"),
        ("0.0 1.0 1e0", "classification"),
    ],
)
def test_the_target_decides_what_is_learnt(tmp_path: Path, cells: str, kind: str) -> None:
    rows = "".join(f"{row},{cell}\n" for row, cell in enumerate(cells.split() * 9))
    task = Table(file=written(tmp_path / "t.csv", "a,y\n" + rows), target="y", hidden=[])
    assert encode(task).facts.kind == kind and task.has_outputs == (kind == "classification")
    assert task.metrics == (("loss", "accuracy") if kind == "classification" else ("loss", "mae"))
    with pytest.raises(ValidationError):
        Table(file="t.csv", target="y", hidden=[0])


def test_regression_finds_the_least_squares_of_a_real_table_and_measures_in_its_own_unit(tmp_path: Path) -> None:
    frame = datasets.load_diabetes(as_frame=True, scaled=False).frame  # 442 patients
    frame.to_csv(tmp_path / "diabetes.csv", index=False)
    task = Table(file=str(tmp_path / "diabetes.csv"), target="target", hidden=[], validation=0, batch_size=1000)
    problem: Any = task.bind(seed=1, clients=4, partition=Iid())
    rows = problem.splits["train"].pixels.astype(np.float64)
    design = np.c_[rows[:, :-1], np.ones(len(rows))]
    best, residual, _, _ = np.linalg.lstsq(design, rows[:, -1])
    metrics = problem.evaluate(best.astype(np.float32), "train")
    assert metrics["loss"] == pytest.approx(residual[0] / len(rows), rel=1e-5)
    target = frame["target"].iloc[problem.splits["train"].rows]
    mae = np.abs(design @ best * target.std(ddof=0) + target.mean() - target).mean()
    assert metrics["mae"] == pytest.approx(mae, rel=1e-5) and 40 < mae < 50
    assert problem.evaluate(np.zeros(11, np.float32), "train")["loss"] == pytest.approx(1, rel=1e-6)
    objectives = [problem.objective(client, 0) for client in range(4)]
    objectives[0].point[:] = best
    gradients = [each.gradient(0).copy() for each in objectives]
    assert np.abs(np.average(gradients, axis=0, weights=[each.samples for each in objectives])).max() < 1e-5
    assert np.abs(gradients).max() > 0.01


def test_a_regression_is_divided_by_the_tenths_of_its_target(tmp_path: Path) -> None:
    rows = "".join(f"{row % 7},{row * row / 7}\n" for row in range(500))
    task = Table(file=written(tmp_path / "t.csv", "a,y\n" + rows), target="y", validation=0)
    division = task.division(seed=1, clients=10, partition=Shards(shards_per_client=1))
    assert len(division.names) == 10 and division.names[0].startswith("from ")
    assert all(np.ptp(division.labels[part]) <= 1 for part in division.parts)
    assert np.ptp(np.bincount(division.labels)) <= 1


def test_a_client_is_a_value_of_a_column_that_need_not_be_a_feature(tmp_path: Path) -> None:
    task = people(tmp_path, features=["height"], validation=0)
    frame = pandas.read_csv(tmp_path / "people.csv", keep_default_na=False).iloc[rows_of(encode(task).train)]
    division = task.division(seed=3, clients=3, partition=ByColumn(column="pet"))
    for pet, part in zip(("", "cat", "dog"), division.parts, strict=True):
        assert np.array_equal(part, np.flatnonzero(frame["pet"] == pet))
    assert division.clients == ["", "cat", "dog"]
    nobody = "partition by-column: an empty cell is one of the values; leave its rows out if nobody owns them"
    assert division.notes == [nobody]
    by_owner = task.division(seed=3, clients=5, partition=Natural()).parts
    by_column = task.division(seed=3, clients=5, partition=ByColumn(column="person")).parts
    assert all(np.array_equal(one, other) for one, other in zip(by_owner, by_column, strict=True))
    problem: Any = task.bind(seed=3, clients=5, partition=Natural())
    assert problem.client_names() == ["0", "1", "2", "3", "4"]
    some = task.division(seed=3, clients=2, partition=Natural())
    held = [frame["person"].iloc[part].unique().tolist() for part in some.parts]
    assert [[int(name)] for name in some.clients] == held, "of those who take part"
    assert task.division(seed=3, clients=2, partition=Iid()).clients == []
    tested = pandas.read_csv(tmp_path / "people.csv").iloc[rows_of(encode(task).test)]
    assert [tested["person"].iloc[part].tolist() for part in problem.owned("test")] == [
        [person] * int((tested["person"] == person).sum()) for person in range(5)
    ]
    assert problem.owned("validation") is not None
    assert task.bind(seed=3, clients=5, partition=ByColumn(column="person")).owned("test") is None  # type: ignore[attr-defined]
    drawn = [task.division(seed=seed, clients=2, partition=ByColumn(column="person")).parts for seed in range(60)]
    assert len({tuple(map(bytes, parts)) for parts in drawn}) == 10, "every pair of persons has a chance"


def test_what_may_not_be_meant_so_is_said_before_a_run(tmp_path: Path) -> None:
    """Names and numbers of the rows, classes that are spelled in two ways, empty cells."""
    task = people(tmp_path)
    assert task.caveats() == []
    assert task.contents() == ["city is one of 3 classes", "an empty cell is a text of its own: pet has 20 of 48"]
    rows = "".join(f"{row},case {row % 30},{row * row},{('yes', 'Yes', 'no')[row % 3]}\n" for row in range(60, 0, -1))
    odd = Table(file=written(tmp_path / "t.csv", "number,case,a,y\n" + rows), target="y")
    assert odd.caveats() == [
        "number has every whole number from 1 to 60 once; leave it out of task.features if it numbers the rows",
        "case has 29 different texts in 48 rows of the training part; leave it out of task.features if it names "
        "the rows",
        "y has the classes 'Yes' and 'yes', each of its own; spell them alike if they are one",
    ]
    squares = odd.model_copy(update={"target": "a", "features": ("y",)})
    assert squares.contents() == ["a is a number"]
    alike = "y has the texts 'Yes' and 'yes', each of its own; spell them alike if they are one"
    assert squares.caveats() == [
        "a has 60 different whole numbers and is learnt as a number; task.kind: classification makes each a class, and "
        "regression says that it is meant so",
        alike,
    ]
    assert squares.model_copy(update={"kind": "regression"}).caveats() == [alike]


def test_equal_numbers_and_truth_values_are_one_text_in_features_targets_owners_and_columns(tmp_path: Path) -> None:
    """However the cells of a column are spelled, the table is the one in which they are spelled alike."""
    spellings = {"0": ("0", "0.0", "00", "-0"), "7": ("7", " 7", "7.0", "+7."), "no": ("no",), "true": ("true", "True")}
    columns = [[key for key in spellings if key != not_here] for not_here in ("true", "no", "7", "0")]
    encodings = []
    for is_uniform in (True, False):
        rows = ["a,g,who,site,y"]
        for row in range(240):
            keys = [cells[(row // 2 + place) % 3] for place, cells in enumerate(columns)]
            cells = [key if is_uniform else spellings[key][row % len(spellings[key])] for key in keys]
            rows.append(",".join([str(row * row), *cells]))
        file = written(tmp_path / f"{is_uniform}.csv", "\n".join(rows) + "\n")
        task = Table(file=file, target="y", owner="who", features=("a", "g", "site"), categorical=("g", "who", "y"))
        kinds = [(Natural(), 3), (ByColumn(column="site"), 3), (Pathological(classes=1), 3)]
        divisions = [task.division(seed=1, clients=clients, partition=kind) for kind, clients in kinds]
        held = [[part.tolist() for part in each.parts] for each in divisions]
        encodings.append((encode(task).train.digest(), encode(task).test.digest(), held, encode(task).facts.classes))
    assert encodings[0] == encodings[1]
    assert encode(task).facts.inputs == ["a", "g=0", "g=7", "g=no", "site=0", "site=no", "site=true"]
    assert task.caveats() == [
        "y has '7' and '+7.' and '7.0', which are taken as one, '7'",
        "g has '0' and '-0' and '0.0', which are taken as one, '0'",
        "site has '0' and '-0' and '0.0', which are taken as one, '0'",
        "who has '0' and '-0' and '0.0', which are taken as one, '0'",
    ]


@pytest.mark.slow
def test_a_run_is_the_same_however_the_cells_of_its_table_are_spelled(tmp_path: Path) -> None:
    ends = []
    for point in ("", ".0"):
        lines = [f"{row},{row % 3}{each},{row % 2}{each}" for row in range(1, 101) for each in ("", point)]
        written(tmp_path / f"t{point}.csv", "\n".join(["x,g,y", *lines, ""]))
        table = {
            "name": "table",
            "file": str(tmp_path / f"t{point}.csv"),
            "target": "y",
            "categorical": ["g"],
            "hidden": [],
        }
        results = go(tmp_path / f"run{point}", scenario(task=table, participation={"clients": 2}))
        assert results.summary["dimension"] == (1 + 3 + 1) * 2
        ends.append((results.digest, results.metrics["accuracy"].tolist()))
    assert ends[0] == ends[1]


def test_codes_of_one_spelling_stay_as_they_are_and_long_numbers_stay_apart(tmp_path: Path) -> None:
    codes = ["007", "08", "1e5", "0x1", str(10**30), str(10**30 + 1), "9" * 500]
    rows = "".join(f"{row},{codes[row % 7]},{row % 2}\n" for row in range(70))
    task = Table(file=written(tmp_path / "t.csv", "a,code,y\n" + rows), target="y", categorical=("code",))
    assert encode(task).facts.inputs == ["a", *(f"code={code}" for code in sorted(codes))]
    assert task.caveats() == [
        "a has every whole number from 0 to 69 once; leave it out of task.features if it numbers the rows"
    ]


def test_a_test_file_is_spelled_as_the_training_file_and_its_unknown_texts_are_noted(tmp_path: Path) -> None:
    train = written(tmp_path / "train.csv", "a,g,y\n" + "3,1.0,True\n5,True,False\n4,cat,True\n" * 9)
    alike = written(tmp_path / "alike.csv", "a,g,y\n7,1.0,True\n7,True,False\n2,Cat,True\n8,,True\n")
    test = written(tmp_path / "test.csv", "a,g,y\n7,1,true\n7,true,FALSE\n2,Cat,TRUE\n8,,true\n")
    first, other = (encode(Table(file=train, test_file=name, target="y")) for name in (alike, test))
    assert first.facts.inputs == other.facts.inputs == ["a", "g=1.0", "g=True", "g=cat"]
    assert first.train.digest() == other.train.digest() and first.test.digest() == other.test.digest()
    assert other.test.pixels[:, 1:].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0]]
    assert other.facts.caveats == [
        "g has in 2 of 4 rows of the test set (50.0%) a text that the training part does not have, such as 'Cat': all "
        "its inputs are 0 there",
        "y has 'False' and 'FALSE', which are taken as one, 'False'",
        "g has '1.0' and '1', which are taken as one, '1.0'",
        "g has the texts 'Cat' and 'cat', each of its own; spell them alike if they are one",
    ]
    told: list[str] = []
    cells = [1, "1.00", True, "TRUE", "cat", "CAT", "cat ", None]
    (given,) = inputs_of([{"a": 3, "g": cell} for cell in cells], other.facts.columns, ",", 10, told.append)
    assert given[:, 1:].argmax(axis=1).tolist() == [0, 0, 1, 1, 2, 0, 2, 0]
    assert given[:, 1:].sum(axis=1).tolist() == [1, 1, 1, 1, 1, 0, 1, 0]
    assert told == ["g has 'CAT', which the training part did not have; it had 'cat': spell them alike if they are one"]


def test_owners_that_may_be_one_and_those_without_a_client_are_noted(tmp_path: Path) -> None:
    rows = "".join(f"{row * row},{('Anna', 'anna', 'Bo')[row % 3]},{row % 2}\n" for row in range(60))
    task = Table(file=written(tmp_path / "t.csv", "a,who,y\n" + rows), target="y", owner="who", validation=0)
    for partition in (Natural(), ByColumn(column="who")):
        nouns = "owners" if partition.by == "owners" else "values"
        alike = f"partition {partition.kind} has the {nouns} 'Anna' and 'anna', each of its own; spell them alike if"
        division = task.division(seed=1, clients=3, partition=partition)
        assert division.notes == [f"{alike} they are one"] and division.rows is not None
        fewer = task.division(seed=1, clients=1, partition=partition)
        nobody = 48 - fewer.parts[0].size
        some = f"partition {partition.kind}: 1 of 3 {nouns} are clients"
        assert fewer.notes[1:] == [f"{some}, so nobody trains on {nobody} of 48 training samples"]


def test_booleans_of_parquet_are_the_texts_that_they_are_in_csv(tmp_path: Path) -> None:
    owns, won = [None if row % 9 == 0 else row % 2 == 0 for row in range(60)], [row % 3 == 0 for row in range(60)]
    cells = pyarrow.table({"owns": owns, "won": won})
    pyarrow.csv.write_csv(cells, tmp_path / "t.csv")
    pyarrow.parquet.write_table(cells, tmp_path / "t.parquet")
    for categorical in ((), ("owns", "won")):
        csv, parquet = (
            encode(Table(file=str(tmp_path / name), target="won", categorical=categorical))
            for name in ("t.csv", "t.parquet")
        )
        assert csv.facts == parquet.facts and csv.train.digest() == parquet.train.digest()
        assert parquet.facts.inputs == ["owns=", "owns=false", "owns=true"]
        assert parquet.facts.classes == ["false", "true"]
    (given,) = inputs_of([{"owns": True}, {"owns": "false"}], parquet.facts.columns, ",", 10)
    assert given.tolist() == [[0, 0, 1], [0, 1, 0]]


TOO_LARGE = r"found a file that cannot be read \(it unpacks to more than [0-9,]+ bytes, the most for its size\); "


def test_packed_csv_is_read_up_to_a_hundred_times_its_size(tmp_path: Path) -> None:
    file = written(tmp_path / "t.csv.gz", gzip.compress(b"a,y\n" + b"1,2\n" * 5_000_000, compresslevel=1))
    with pytest.raises(DataError, match=TOO_LARGE):
        encode(Table(file=file, target="y"))


@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string()], ids=str)
@pytest.mark.parametrize("is_declared", [True, False])
def test_a_text_that_parquet_stores_once_does_not_fill_the_memory(
    tmp_path: Path, kind: pyarrow.DataType, is_declared: bool
) -> None:
    """30 kB would be 100 GB if each row had its own copy of the text."""
    texts = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array(np.zeros(100_000, np.int32)), pyarrow.array(["x" * 10**6], kind)
    )
    numbers = pyarrow.array(np.arange(100_000) % 2)
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"a": texts, "b": numbers, "y": numbers}), path, store_schema=is_declared)
    with pytest.raises(DataError, match=r"t\.parquet: " + TOO_LARGE):
        encode(Table(file=str(path), target="y", hidden=[]))
    assert len(encode(Table(file=str(path), target="y", features=["b"], hidden=[])).train.labels) == 80_000


def test_bytes_that_parquet_stores_once_are_not_read(tmp_path: Path) -> None:
    cells = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array(np.zeros(100_000, np.int32)), pyarrow.array([b"x" * 10**6])
    )
    numbers = pyarrow.array(np.arange(100_000) % 2)
    path = tmp_path / "t.parquet"
    table = pyarrow.table({"a": cells, "lists": pyarrow.array([[1, 2]] * 100_000), "b.c": numbers, "y": numbers})
    pyarrow.parquet.write_table(table, path, store_schema=False)
    assert encode(Table(file=str(path), target="y", features=["b.c"], hidden=[])).facts.inputs == ["b.c"]
    for name, kind in (("a", "binary"), ("lists", "list<.*>")):
        with pytest.raises(
            DataError, match=f"column {name}: found cells of the type {kind}; expected texts or numbers"
        ):
            encode(Table(file=str(path), target="y", features=[name], hidden=[]))


def test_parquet_of_more_rows_than_its_size_can_hold_is_not_read(tmp_path: Path) -> None:
    column = pyarrow.array(np.zeros(3_000_000, np.int8))
    pyarrow.parquet.write_table(pyarrow.table({"a": column, "y": column}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet: " + TOO_LARGE):
        encode(Table(file=str(tmp_path / "t.parquet"), target="y"))


def test_parquet_of_many_cells_of_a_byte_is_read(tmp_path: Path) -> None:
    """They would be too many if each had 8 bytes."""
    column = pyarrow.array(np.arange(30_000) % 2 == 0)
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pyarrow.table({f"c{number}": column for number in range(100)}), path)
    assert 8 * 3_000_000 > untrusted.most_unpacked(path)
    assert len(encode(Table(file=str(path), target="c0", features=["c1"], hidden=[])).train.labels) == 24_000


@pytest.mark.parametrize(
    ("kind", "cell", "size"),
    [
        (pyarrow.binary(1000), bytes(1000), 1000),
        (pyarrow.decimal128(5), Decimal(1), 16),
        (pyarrow.list_(pyarrow.bool_()), [True] * 40, 40 * 8),
        (pyarrow.struct([("a", pyarrow.bool_())]), {"a": True}, 8),
        (pyarrow.bool_(), True, 8),
    ],
    ids=["bytes", "decimal", "list", "struct", "boolean"],
)
def test_cells_that_parquet_stores_once_count_with_the_memory_that_they_need(
    tmp_path: Path, kind: pyarrow.DataType, cell: Any, size: int
) -> None:
    column = pyarrow.repeat(pyarrow.scalar(cell, kind), 2**24 // size + 1)
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"a": column}), path)
    with pyarrow.parquet.ParquetFile(path) as file, pytest.raises(OSError, match="it unpacks to more than"):
        untrusted.check_parquet(file, path)


def test_bytes_that_are_no_text_and_damaged_packing_are_one_sentence(tmp_path: Path) -> None:
    cells = pyarrow.Array.from_buffers(
        pyarrow.string(), 2, [None, pyarrow.py_buffer(np.array([0, 1, 2], np.int32)), pyarrow.py_buffer(b"\xff\xfe")]
    )
    pyarrow.parquet.write_table(pyarrow.table({"a": cells, "y": [1, 2]}), tmp_path / "t.parquet")
    packed = bytearray(gzip.compress(b"a,y\n1,2\n3,4\n" * 99))
    packed[12:16] = b"\xff" * 4
    for file in (str(tmp_path / "t.parquet"), written(tmp_path / "t.csv.gz", bytes(packed))):
        with pytest.raises(DataError, match=r"found a file that cannot be read \(.*\); expected a table as CSV text"):
            encode(Table(file=file, target="y"))


def test_a_class_without_training_rows_and_a_kind_of_cells_that_a_test_file_changes_are_named(tmp_path: Path) -> None:
    train = written(tmp_path / "train.csv", "a,y\n1,p\n3,q\n")
    test = written(tmp_path / "test.csv", "a,y\n1,p\n2,r\n")
    with pytest.raises(
        DataError, match=r"test.csv, line 3, column y: found the class 'r', .*; expected one of 'p', 'q'"
    ):
        encode(Table(file=train, test_file=test, target="y"))
    written(tmp_path / "test.csv", "a,y\n1,p\nu,q\nv,q\n")
    with pytest.raises(DataError, match=r"test.csv, line 3, column a: found 'u' in a column of numbers"):
        encode(Table(file=train, test_file=test, target="y"))


def test_parquet_names_the_row_and_the_type(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    pandas.DataFrame({"a": [1, None, 3.0], "y": ["p", "q", "p"]}).to_parquet(path)
    with pytest.raises(DataError, match=r"t.parquet, row 2, column a: found an empty cell in a column of numbers"):
        encode(Table(file=path, target="y"))
    pandas.DataFrame({"a": pandas.to_datetime(["2026-01-01"] * 3), "y": ["p", "q", "p"]}).to_parquet(path)
    with pytest.raises(
        DataError, match=r"t.parquet, column a: found cells of the type timestamp.*; expected texts or num"
    ):
        encode(Table(file=path, target="y"))


def test_a_partition_that_a_table_cannot_have_is_one_sentence(tmp_path: Path) -> None:
    task = people(tmp_path)
    with pytest.raises(DataError, match=r"partition natural: found task table without an owner; expected task.owner"):
        people(tmp_path, owner=None).bind(seed=1, clients=2, partition=Natural())
    with pytest.raises(
        DataError, match=r"people.csv: found no column pets for partition.column; expected one of height"
    ):
        task.division(seed=1, clients=2, partition=ByColumn(column="pets"))
    with pytest.raises(
        DataError, match=r"found 4 clients and 3 values of pet in the training samples; expected 1 to 3"
    ):
        task.division(seed=1, clients=4, partition=ByColumn(column="pet"))
    with pytest.raises(DataError, match=r"no samples for clients .*; expected a sample for every client"):
        task.division(seed=1, clients=9, partition=Dirichlet(alpha=0.01, balanced=False))
    with pytest.raises(ValidationError, match="features has city, which is the target; leave it out of features"):
        people(tmp_path, features=["city", "age"])
