"""Images in a user's own folders: classes, sizes, channels, networks, proofs, and a sentence for every bad image."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_data import picture_folder, png

from seedbus.models import DataError, Iid, Natural
from seedbus.models.generators import generator
from seedbus.models.tasks.image_folder import ImageFolder

pytestmark = pytest.mark.slow

Image = pytest.importorskip("PIL.Image", reason="image-folder decodes with pillow, which is not installed")


@pytest.fixture(autouse=True)
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two classes of twenty pictures, and an empty cache."""
    monkeypatch.setenv("SEEDBUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SEEDBUS_DATA", raising=False)
    picture_folder(tmp_path / "pictures")
    return tmp_path / "pictures"


def task(folder: Path, **fields: Any) -> ImageFolder:
    return ImageFolder(**{"folder": str(folder), "size": 12, "model": "softmax", **fields})


def test_pixels_and_classes_are_those_of_the_files_and_a_fifth_is_the_test_set(pictures: Path) -> None:
    train, test = task(pictures).load()
    assert train.labels.size == 32 and test.labels.size == 8
    files = sorted(pictures.rglob("*.png"))
    expected = np.stack([generator(file.parent.name, int(file.stem)).integers(
        0, 256 if file.parent.name == "day" else 100, (12, 12, 3), dtype=np.uint8) for file in files])  # fmt: skip
    for part in (train, test):
        assert part.rows is not None
        assert np.array_equal(part.pixels, expected[part.rows])
        assert [("day", "night")[label] for label in part.labels] == [files[row].parent.name for row in part.rows]
    inputs = task(pictures).inputs(train.pixels)
    assert np.allclose(inputs.mean(axis=(0, 1, 2)), 0, atol=1e-5) and np.allclose(
        inputs.std(axis=(0, 1, 2)), 1, atol=1e-5
    )


def test_train_and_test_folders_are_kept_apart_and_test_may_lack_a_class(tmp_path: Path) -> None:
    picture_folder(tmp_path / "own" / "train", images=3)
    picture_folder(tmp_path / "own" / "test", images=2)
    for file in (tmp_path / "own" / "test" / "night").iterdir():
        file.unlink()
    (tmp_path / "own" / "test" / "night").rmdir()
    (tmp_path / "own" / "train" / ".hidden").mkdir()
    (tmp_path / "own" / "train" / "day" / "notes.txt").write_text("not an image")
    train, test = task(tmp_path / "own").load()
    assert train.labels.tolist() == [0, 0, 0, 1, 1, 1] and test.labels.tolist() == [0, 0]
    assert task(tmp_path / "own").division(seed=1, clients=2, partition=Iid()).names == ["day", "night"]


def test_classes_that_differ_only_in_case_are_noted(pictures: Path) -> None:
    assert task(pictures).caveats() == []
    shutil.copytree(pictures / "day", pictures / "Day")
    note = "task.folder has the classes 'Day' and 'day', each of its own; spell them alike if they are one"
    assert task(pictures).caveats() == [note]
    shutil.move(pictures / "Day", pictures / "1")
    shutil.copytree(pictures / "day", pictures / "01")
    assert task(pictures).caveats() == [note.replace("Day", "01").replace("day", "1")]


def test_images_of_any_size_kind_and_turn_become_squares_of_grey_or_colour(pictures: Path) -> None:
    wide = np.zeros((40, 80, 3), dtype=np.uint8)
    wide[:, :40] = 255  # the left half is white
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright: what is left in the file is above in the picture
    Image.fromarray(wide).save(pictures / "day" / "0.JPG", format="JPEG", quality=95, exif=exif)
    Image.fromarray(wide).convert("P").save(pictures / "day" / "1.png")
    Image.fromarray(wide).convert("1").save(pictures / "day" / "2.png")
    grey = task(pictures, colours="grey", size=8)
    train, _ = grey.load()
    assert train.stored.shape == (43, 8, 8, 1)
    files = sorted((pictures / "day").iterdir())
    turned, palette, one_bit = (
        train.stored[[file.name for file in files].index(name), ..., 0] for name in ("0.JPG", "1.png", "2.png")
    )
    assert turned[:3].min() > 240 and turned[-3:].max() < 15
    for flat in (palette, one_bit):
        assert flat[:, :3].min() == 255 and flat[:, -3:].max() == 0


def test_a_channel_of_one_brightness_becomes_zeros(tmp_path: Path) -> None:
    for split, brightness in (("train", 7), ("test", 8)):
        for name in ("day", "night"):
            (tmp_path / "even" / split / name).mkdir(parents=True)
            for number in range(5):
                Image.new("L", (8, 8), brightness).save(tmp_path / "even" / split / name / f"{number}.png")
    what = task(tmp_path / "even", colours="grey", size=8)
    train, test = what.load()
    assert not what.inputs(train.pixels).any()  # the mean of 640 times 7/255, rounded, is another number
    assert np.allclose(what.inputs(test.pixels), 1 / 255)


@pytest.mark.parametrize("colours", ["grey", "rgb"])
@pytest.mark.parametrize("model", ["softmax", "mnist-cnn", "leaf-cnn", "resnet-18"])
def test_every_network_takes_the_size_the_channels_and_the_classes(pictures: Path, model: str, colours: str) -> None:
    what = task(pictures, model=model, colours=colours, size=11, batch_size=4)
    problem: Any = what.bind(seed=1, clients=2, partition=Iid())
    assert problem.dimension == what.dimension
    objective = problem.objective(0, 0)
    objective.point[:] = problem.x0()
    assert np.isfinite(objective.loss(0)) and np.isfinite(objective.gradient(0)).all()


def test_a_task_that_is_bound_again_has_the_images_and_classes_of_then(pictures: Path) -> None:
    again = task(pictures)
    before = again.bind(seed=1, clients=2, partition=Iid())
    for name in ("day", "dusk"):
        (pictures / name).mkdir(exist_ok=True)
        for number in range(100, 110):
            Image.new("RGB", (12, 12), (number, 0, 0)).save(pictures / name / f"{number}.png")
    both: Any = [each.bind(seed=1, clients=2, partition=Iid()) for each in (again, task(pictures))]
    own, fresh = both
    assert again.dimension == own.dimension == fresh.dimension > before.dimension
    assert own.identity() == fresh.identity()
    assert own.evaluate(own.x0(), "train") == fresh.evaluate(fresh.x0(), "train")


def test_another_pixel_gives_another_proof(pictures: Path) -> None:
    def proof() -> bytes:
        problem: Any = task(pictures).bind(seed=1, clients=2, partition=Iid())
        identity: bytes = problem.identity()
        return identity

    first = proof()
    assert proof() == first
    pixels = np.asarray(Image.open(pictures / "day" / "003.png")).copy()
    pixels[0, 0, 0] ^= 1
    (pictures / "day" / "003.png").write_bytes(png(pixels))
    assert proof() != first


def _damage(pictures: Path) -> None:
    file = pictures / "night" / "004.png"
    file.write_bytes(file.read_bytes()[:120])


def _damage_camera(pictures: Path) -> None:
    """Write what a camera says as an Exif block of two entries: turn the image, and a resolution that is a text."""
    entries = struct.pack("<HHHII", 2, 0x0112, 3, 1, 6) + struct.pack("<HHI4sI", 0x011A, 2, 1, b"ab", 0)
    exif = b"Exif\0\0II*\0\x08\0\0\0" + entries
    Image.new("RGB", (4, 4)).save(pictures / "day" / "x.jpg", exif=exif)


def _empty(pictures: Path) -> None:
    (pictures / "dusk").mkdir()


MISTAKES: dict[str, tuple[Callable[[Path], object], str]] = {
    "damaged": (_damage, r"004.png: found an image that cannot be read \(.*\); expected an image as PNG or JPEG$"),
    "text": (
        lambda folder: (folder / "day" / "x.jpg").write_text("hello"),
        r"x.jpg: found an image that cannot be read \(cannot identify image file.*\); expected an image as PNG",
    ),
    "deep": (
        lambda folder: Image.fromarray(np.full((4, 4), 900, np.uint16)).save(folder / "day" / "x.png"),
        r"x.png: found pixels of Pillow's mode I;16; expected an image of eight bits a channel$",
    ),
    "damaged camera": (
        _damage_camera,
        r"x.jpg: found an image that cannot be read \(bad operand type for abs.*\); expected an image as PNG",
    ),
    "pipe": (
        lambda folder: os.mkfifo(folder / "day" / "x.png"),
        r"x.png: found an image that cannot be read \(.*neither a file nor a link to one.*\); expected an image as PNG",
    ),
    "empty class": (_empty, r"dusk: found no images; expected a file at least that ends in .png, .jpg, .jpeg$"),
    "alone": (
        lambda folder: (folder / "night").rename(folder.parent / "away"),
        r"pictures: found 1 folders of classes; expected two classes at least: folders train/ and test/",
    ),
}  # fmt: skip


def test_a_client_is_an_owner_with_its_name_and_its_test_images(pictures: Path) -> None:
    owned = task(pictures, owners=str(pictures / "owners.csv"), validation=0)
    problem: Any = owned.bind(seed=1, clients=3, partition=Natural())
    names = [
        problem.client_names(),
        *(owned.division(seed=s, clients=3, partition=Natural()).clients for s in range(9)),
    ]
    assert len({tuple(each) for each in names}) > 1 and sorted({name for each in names for name in each}) == [
        f"Clinic {n}" for n in range(5)
    ]
    files = sorted(pictures.rglob("*.png"))  # the owner of image n is clinic n % 5
    for split, parts in (("train", problem.parts), ("test", problem.owned("test"))):
        rows = problem.splits[split].rows
        for name, part in zip(names[0], parts, strict=True):
            own = [row for row in rows if f"Clinic {int(files[row].stem) % 5}" == name]
            assert rows[part].tolist() == own and (own or split == "test")
    text = (pictures / "owners.csv").read_text()
    (pictures.parent / "moved.csv").write_text(text.replace("day/", "./day//").replace("Clinic 4", "Clinic 3"))
    moved: Any = owned.model_copy(update={"owners": str(pictures.parent / "moved.csv")})
    assert moved.named_files() == [pictures, pictures.parent / "moved.csv"]
    assert moved.bind(seed=1, clients=3, partition=Natural()).identity() != problem.identity()


def test_owners_of_images_are_one_in_any_spelling_of_their_number_and_noted_if_they_look_alike(pictures: Path) -> None:
    text = (pictures / "owners.csv").read_text()
    numbers = text.replace("Clinic ", "")
    spelled = "".join(f"{line}.0\n" if row % 7 == 3 else f"{line}\n" for row, line in enumerate(numbers.splitlines()))
    cased = text.replace("Clinic 4", "clinic 3")
    proofs = []
    for name, content in (("plain", numbers), ("spelled", spelled), ("cased", cased)):
        (pictures.parent / f"{name}.csv").write_text(content)
        owned: Any = task(pictures, owners=str(pictures.parent / f"{name}.csv"), validation=0)
        proofs.append(owned.bind(seed=1, clients=5, partition=Natural()).identity())
        notes = owned.division(seed=1, clients=5, partition=Natural()).notes
    assert proofs[0] == proofs[1]
    alike = (
        "partition natural has the owners 'Clinic 3' and 'clinic 3', each of its own; spell them alike if they are one"
    )
    assert notes == [alike]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "file,owner\nday/000.png,A\n",
            r"o\.csv: found no line for day/001\.png; expected a line for each image, with ",
        ),
        (
            "file,owner\nday/000.png,A\nday/000.png,B\n",
            r"o\.csv, line 3, column file: found day/000\.png again; expect",
        ),
        (
            "file,owner\nday/000.png,\n",
            r"o\.csv, line 2, column owner: found an empty cell; expected the owner of the ",
        ),
        (
            "file;owner\nday/000.png;A\n",
            r'found no column file for task\.owners; expected .*, with "," between the cell',
        ),
        (
            None,
            r"task\.owners: found no file \S+o\.csv; expected a CSV or Parquet file beside the scenario's file, or ",
        ),
    ],
)
def test_a_mistake_in_the_table_of_owners_is_one_sentence(pictures: Path, text: str | None, sentence: str) -> None:
    if text is not None:
        (pictures / "o.csv").write_text(text)
    with pytest.raises(DataError, match=sentence):
        task(pictures, owners=str(pictures / "o.csv")).load()


def test_images_without_owners_are_not_divided_by_them(pictures: Path) -> None:
    with pytest.raises(
        DataError, match=r"natural: found task image-folder without owners; expected task\.owners: a CSV"
    ):
        task(pictures).bind(seed=1, clients=2, partition=Natural())


@pytest.mark.parametrize(("mistake", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_a_folder_is_one_sentence(pictures: Path, mistake: Any, sentence: str) -> None:
    mistake(pictures)
    with pytest.raises(DataError, match=sentence) as raised:
        task(pictures).load()
    assert "\n" not in str(raised.value)


def test_a_folder_that_is_not_there_and_a_test_class_that_is_new_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"task.folder: found no folder nowhere; expected a folder of images beside the"
    ):
        ImageFolder(folder="nowhere").load()
    picture_folder(tmp_path / "own" / "train", images=1)
    picture_folder(tmp_path / "own" / "test", images=1)
    (tmp_path / "own" / "test" / "night").rename(tmp_path / "own" / "test" / "dusk")
    with pytest.raises(
        DataError, match="dusk: found a class that the training images do not have; expected one of day"
    ):
        task(tmp_path / "own").load()


def test_a_class_that_only_the_test_part_has_is_named(pictures: Path) -> None:
    for file in sorted((pictures / "night").iterdir())[1:]:
        file.unlink()
    with pytest.raises(
        DataError, match=r"night: found no image of the class in the training part; expected more images"
    ):
        task(pictures, test=0.9).load()
