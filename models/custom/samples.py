"""Samples of any map-style data set: items (input, target), read once and kept, or read again for each batch.

Items become tensors by torch's default collation. Numbers with a fraction are float32, as the weights are, and whole
targets int64.

The invariant: an item has the same values whenever it is read. Each is digested at the first reading, and the digest of
all of them is part of what every process proves of itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.data import ConcatDataset, IterableDataset, default_collate

from seedbus.keyed import keyed_bits
from seedbus.models.device import moved
from seedbus.models.errors import DataError, is_out_of_memory
from seedbus.models.own_code.network import reason
from seedbus.models.own_code.repeated import generators_kept, random_state
from seedbus.models.partition import Divisible, Indices, Partition
from seedbus.models.partitions.own import Own
from seedbus.models.resident import Rows

CHUNK = 256  # items read at a time
READ_AGAIN = 16  # items of a kept data set that are read a second time, to find one that draws at random
DRAWN_AGAIN = 2048  # as many if reading has drawn from a generator, because a rare transform changes few items
SORTED = 2**22  # numbers of targets that are sorted to find those that differ
_MOST_CLASSES = 20  # different whole numbers in floating point that are classes, as in a table
IGNORED = -100  # the target that torch's cross-entropy leaves out of its mean
_EXPECTED = (
    "items (input, target) of tensors, arrays or numbers, alike in shape and type, such as list(zip(inputs, targets))"
)


@dataclass
class Targets:
    """What the targets of a data set are.

    Attributes:
        extremes: the lowest and the highest, `IGNORED` aside; none: there are no others.
        are_whole: whether all are whole numbers, or truth values.
        are_shares: whether each item has those of several classes: none below 0, and with a sum of 1.
        ignored: the first item whose targets all are `IGNORED`; None: there is none.
    """

    extremes: list[float] = field(default_factory=list)
    are_whole: bool = True
    are_shares: bool = True
    ignored: int | None = None

    def add(self, targets: NDArray[Any], first: int) -> None:
        """Add the targets of some items, [b, …], of which the first has that number."""
        if targets.dtype.kind == "c":
            self.are_whole = self.are_shares = False
            return
        rows = targets.reshape(len(targets), -1)
        is_counted = rows != IGNORED
        if (counted := rows[is_counted]).size:
            found = [*self.extremes, counted.min().item(), counted.max().item()]
            self.extremes = [min(found), max(found)]
        ignored = np.flatnonzero(~is_counted.any(axis=1))
        if self.ignored is None and ignored.size:
            self.ignored = first + int(ignored[0])
        self.are_whole = self.are_whole and (targets.dtype.kind != "f" or bool((rows == np.rint(rows)).all()))
        self.are_shares = self.are_shares and targets.ndim > 1 and targets.shape[1] > 1 and _are_shares(targets)


def _are_shares(targets: NDArray[Any]) -> bool:
    return bool((targets >= 0).all() and np.allclose(targets.sum(axis=1, dtype=np.float64), 1, atol=1e-3))


class Reading:
    """A data set that has been read once.

    Attributes:
        classes: the target of each item if targets are single whole numbers, int64 [n]; else None.
        labels: the class of each item by its own target, int64 [n], also if that is a truth value, a whole number in
            floating point, of which there are few, or one 1 among zeros; None: targets are no classes.
        targets: what its targets are.
        digest: of all items and of their shapes and types.
    """

    def __init__(self, dataset: Any, what: str, *, keep: bool) -> None:
        """Read all items.

        Args:
            dataset: a map-style data set.
            what: the data set's name in messages.
            keep: whether to keep the items in memory.

        Raises:
            DataError: there are no items, or they cannot be samples.
        """
        self.dataset, self._what = dataset, what
        self._spec: Any = None  # the structure of the inputs
        self._alike: list[tuple[Any, ...]] = []
        self._kept: list[Tensor] | None = None
        self._placed: dict[torch.device | None, Rows] = {}
        count = self._count()
        if count == 0:
            raise DataError(f"task.data: {what}", "no items", "at least one")
        chunks = []
        self._digests = np.zeros(count, np.uint64)
        classes, labels = [], list[NDArray[Any]]()
        self.targets = Targets()
        before = random_state()
        for start in range(0, count, CHUNK):
            rows = np.arange(start, min(start + CHUNK, count))
            leaves = self._read(rows)
            self._check_finite(leaves, rows)
            self._digests[rows] = _row_digests(leaves)
            self.targets.add(leaves[-1].numpy(), start)
            if leaves[-1].dtype == torch.int64 and leaves[-1].ndim == 1:
                classes.append(leaves[-1])
            if len(labels) * CHUNK == start:  # as long as all have been classes
                labels += _classes_of(leaves[-1])
            if keep:
                chunks.append(leaves)
        self.classes = torch.cat(classes).numpy() if classes else None
        self.labels = self.classes
        if self.classes is None and len(labels) * CHUNK >= count:
            self.labels = _whole_numbers(np.concatenate(labels), count, _MOST_CLASSES)
        shapes = repr(self._alike).encode()
        self.digest = hashlib.blake2b(self._digests.tobytes() + shapes, digest_size=16).digest()
        many = READ_AGAIN if random_state() == before else DRAWN_AGAIN
        again = np.unique(np.linspace(0, count - 1, many).astype(np.int64))
        with generators_kept():
            self._check_same(self._read(again), again)
        if keep:
            self._kept = [torch.cat(parts) for parts in zip(*chunks, strict=True)]

    @property
    def count(self) -> int:
        """Number of items."""
        return self._digests.size

    def contents(self) -> Iterator[bytes]:
        """Yield a digest of each item."""
        return map(np.uint64.tobytes, self._digests)

    def check_like(self, other: Reading) -> None:
        """Raise `DataError` unless items have the structure, shapes and types of another data set's."""
        if (self._spec, self._alike) != (other._spec, other._alike):
            found = f"items of shapes {_shapes(self._alike)}"
            raise DataError(f"task.data: {self._what}", found, f"those of {other._what}, {_shapes(other._alike)}")

    @property
    def kept_targets(self) -> Tensor | None:
        """The target of each item, [n, …], if they are in memory."""
        if self._kept is not None:
            return self._kept[-1]
        return None if self.classes is None else torch.from_numpy(self.classes)

    def batch(self, rows: Indices, device: torch.device | None = None) -> tuple[Any, Tensor]:
        """Return inputs, as tensors [b, …] in the items' structure, and targets [b, …].

        Args:
            rows: the items, [b].
            device: where the tensors shall lie, and the items too if they fit; None: in host memory.

        Raises:
            DataError: an item is gone, or has other values than at first.
        """
        if self._kept is not None:
            if device not in self._placed:
                self._placed[device] = Rows(self._kept, device)
            leaves = self._placed[device].at(rows)
        else:
            leaves = self._read(rows)
            self._check_same(leaves, rows)
            leaves = moved(leaves, device)
        inputs: Any = tree_unflatten(leaves[:-1], self._spec)
        return inputs, leaves[-1]

    def _count(self) -> int:
        where, expected = f"task.data: {self._what}", "a map-style data set, with __len__ and __getitem__"
        if isinstance(self.dataset, IterableDataset) or not hasattr(self.dataset, "__getitem__"):
            raise DataError(where, f"a {type(self.dataset).__name__}", expected)
        try:
            return len(self.dataset)
        except TypeError:
            raise DataError(where, f"a {type(self.dataset).__name__} without a length", expected) from None

    def _item(self, row: int) -> Any:
        try:
            item = self.dataset[row]
        except Exception as error:
            if is_out_of_memory(error):
                raise
            was = f"; it had {self.count:,} items at first" if self._spec is not None else ""
            raise DataError(self._at(row), f"an error when it is read ({reason(error)}){was}", _EXPECTED) from error
        if not isinstance(item, tuple | list) or len(item) != 2:
            size = f" of {len(item)}" if isinstance(item, tuple | list | dict) else ""
            raise DataError(self._at(row), f"a {type(item).__name__}{size}", _EXPECTED)
        return item

    def _read(self, rows: Indices) -> list[Tensor]:
        """Return the tensors of some items, [b, …] each: those of the inputs, and last the targets."""
        items = [self._item(int(row)) for row in rows]
        try:
            inputs, targets = default_collate(items)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise DataError(self._unlike(items, rows), _described(error), _EXPECTED) from error
        leaves, spec = tree_flatten(inputs)
        for leaf in [*leaves, targets]:
            if not isinstance(leaf, Tensor):
                raise DataError(self._at(int(rows[0])), f"a value of type {_type_of(leaf)}", _EXPECTED)
        leaves = [leaf.float() if leaf.is_floating_point() else leaf for leaf in leaves]
        whole = not targets.is_floating_point() and not targets.is_complex() and targets.dtype != torch.bool
        leaves.append(targets.float() if targets.is_floating_point() else targets.long() if whole else targets)
        alike = [(leaf.dtype, tuple(leaf.shape[1:])) for leaf in leaves]
        if self._spec is None:
            self._spec, self._alike = spec, alike
        elif (spec, alike) != (self._spec, self._alike):
            found = f"shapes {_shapes(alike)}, while item 0 has {_shapes(self._alike)}"
            raise DataError(self._at(int(rows[0])), found, _EXPECTED)
        return leaves

    def _check_finite(self, leaves: Sequence[Tensor], rows: Indices) -> None:
        for number, leaf in enumerate(leaves):
            if leaf.is_floating_point() and not leaf.isfinite().all():
                row = int(rows[int(leaf.isfinite().reshape(len(rows), -1).all(dim=1).int().argmin())])
                part = "a target" if number == len(leaves) - 1 else "an input"
                raise DataError(self._at(row), f"{part} that is not finite", "finite numbers")

    def _check_same(self, leaves: Sequence[Tensor], rows: Indices) -> None:
        changed = np.flatnonzero(_row_digests(leaves) != self._digests[rows])
        if changed.size:
            raise DataError(
                self._at(int(rows[changed[0]])),
                f"other values than when it was read first from its {type(self.dataset).__name__}",
                "a data set without random transforms, whose files do not change",
            )

    def _unlike(self, items: Sequence[Any], rows: Indices) -> str:
        """Name the first item that cannot be collated with the one before it."""
        for place in range(1, len(items)):
            try:
                default_collate([items[0], items[place]])
            except Exception:
                return self._at(int(rows[place]))
        return self._at(int(rows[0]))

    def _at(self, row: int) -> str:
        return f"task.data: item {row:,} of {self._what}"


@dataclass(frozen=True)
class Selection:
    """Some samples of a data set.

    Attributes:
        reading: the data set.
        labels: the class of each sample, int64 [n]; zeros if samples have no classes.
        rows: the items that they are, int64 [n].
        has_classes: whether samples have classes.
        notes: what may not be meant so, sentences.
        owners: the client of each sample, int64 [n]; None: samples have no owners.
    """

    reading: Reading
    labels: NDArray[np.int64]
    rows: Indices
    has_classes: bool
    notes: Sequence[str] = ()
    owners: NDArray[np.int64] | None = None

    @property
    def divisible(self) -> Divisible:
        """What these samples can be divided by."""
        places = np.full(self.reading.count, -1, dtype=np.int64)
        places[self.rows] = np.arange(self.rows.size)
        return Divisible(self.labels, places, self.owners, notes=self.notes)

    def take(self, indices: Indices) -> Selection:
        """Return some of these samples."""
        owners = None if self.owners is None else self.owners[indices]
        return replace(self, labels=self.labels[indices], rows=self.rows[indices], owners=owners)

    def telling_targets(self, most: int) -> Tensor | None:
        """Return targets of these samples that differ as much as can be, [m, …]; None: they are not in memory.

        Args:
            most: values of targets, one sample of each; of more values, as many that lie evenly in their order.
        """
        kept = self.reading.kept_targets
        if kept is None:
            return None
        few = np.linspace(0, self.rows.size - 1, min(self.rows.size, most)).astype(np.int64)
        among = self.rows if kept[0].numel() * self.rows.size <= SORTED else self.rows[few]
        values, first = np.unique(kept[among].numpy().reshape(among.size, -1), return_index=True)
        chosen = first[np.linspace(0, values.size - 1, min(values.size, most)).astype(np.int64)]
        return kept[among[chosen // kept[0].numel()]]

    def batch(self, indices: Indices, device: torch.device | None = None) -> tuple[Any, Tensor]:
        """Return inputs and targets of some of these samples, on a device. Raises `DataError`."""
        return self.reading.batch(self.rows[indices], device)


def selection(reading: Reading, labels: NDArray[np.int64] | None = None, notes: Sequence[str] = ()) -> Selection:
    """Return all samples of a data set.

    Args:
        reading: the data set.
        labels: their classes, [n]; None: their targets, if those are classes.
        notes: what may not be meant so, sentences.
    """
    classes = reading.labels if labels is None else labels
    rows = np.arange(reading.count)
    return Selection(reading, np.zeros_like(rows) if classes is None else classes, rows, classes is not None, notes)


def own_splits(task: Any, partition: Own) -> dict[str, Selection]:
    """Return the samples of this process as "train", "validation" and "test", and "specimens", which are nobody's.

    Args:
        task: one that `partitions.own.ReadsOwn`, whose data sets are `Reading`s.
        partition: has the owners' files and folders.

    Raises:
        DataError: an owner's data set cannot be read, or its items are not like the specimens.
    """
    specimens: Reading = task.specimens()
    rows: dict[str, list[Indices]] = {"train": [], "validation": [], "test": []}
    datasets, owners, first = [], [np.zeros(0, dtype=np.int64)], 0
    for client, reading, chosen in partition.shares(task, specimens, Reading.contents):
        reading.check_like(specimens)
        for split, part in chosen.items():
            rows[split].append(first + part)
        datasets.append(reading.dataset)
        owners.append(np.full(reading.count, client, dtype=np.int64))
        first += reading.count
    nobodys = selection(specimens)
    together = nobodys.take(np.zeros(0, dtype=np.int64))
    if datasets:
        every = Reading(ConcatDataset(datasets), "the owners' data sets", keep=task.in_memory)
        together = selection(every)
    together = replace(together, owners=np.concatenate(owners))
    parts = {name: together.take(np.concatenate([owners[0], *each])) for name, each in rows.items()}
    return parts | {"specimens": nobodys}


def check_divisible(partition: Partition, train: Selection) -> None:
    """Raise `DataError` if a partition divides by the classes of samples that have none."""
    if partition.by == "labels" and partition.by_class and not train.has_classes:
        expected = "task.labels, a class for each sample, or kind: iid or quantity"
        raise DataError(f"partition {partition.kind}", "targets that are no classes", expected)


def given_labels(labels: Any, dataset: Any, reading: Reading) -> tuple[NDArray[np.int64] | None, list[str]]:
    """Return the class of each training item, if it is not its target, and what may not be meant so, sentences.

    A data set may hand on an attribute of another one whose items it selects, orders or changes. So an attribute counts
    only where targets are no classes.

    Args:
        labels: the field's value: an array, or a function that takes the data set; None: the attribute `targets` or
            `labels` of the data set, if that is a whole number for each item and targets are no classes.
        dataset: the training data set.
        reading: its items.

    Raises:
        DataError: what is given is not one whole number for each item.
    """
    count = reading.count
    if labels is None:
        name = next((name for name in ("targets", "labels") if hasattr(dataset, name)), "")
        offered = _whole_numbers(getattr(dataset, name, None), count, _MOST_CLASSES)
        if reading.labels is None or offered is None:
            return offered, []
        for row in np.flatnonzero(offered != reading.labels)[:1]:
            found = f"item {row:,} of the training set has the class {reading.labels[row]}"
            there = f"{offered[row]} in the attribute {name} of the data set"
            return None, [f"task.data: {found}, and {there}; partitions go by the items, or by task.labels"]
        return None, []
    try:
        with generators_kept(keyed_bits("labels")):
            values = labels(dataset) if callable(labels) else labels
    except Exception as error:
        raise DataError(
            "task.labels", f"a function that fails ({reason(error)})", "one that takes the data set"
        ) from error
    array = _whole_numbers(values, count)
    if array is None:
        shape = getattr(values, "shape", None)
        found = f"values of shape {tuple(shape)}" if shape is not None else f"a {type(values).__name__}"
        raise DataError("task.labels", found, f"a whole number for each of the {count:,} training items")
    return array, []


def _whole_numbers(values: Any, count: int, most: int | None = None) -> NDArray[np.int64] | None:
    """Return values [count] as whole numbers, be they floating-point or truth values; None: they are none.

    Args:
        values: of any type.
        count: how many there must be.
        most: different floating-point values, as there may be; None: any number of them.
    """
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError):
        return None
    if array.shape != (count,) or array.dtype.kind not in "iubf":
        return None
    with np.errstate(invalid="ignore"):  # of what is not finite
        whole = array.astype(np.int64)
    is_many = most is not None and array.dtype.kind == "f" and np.unique(whole).size > most
    return whole if np.array_equal(whole, array) and not is_many else None


def _classes_of(targets: Tensor) -> list[NDArray[Any]]:
    """Return targets [n, …] as an array of numbers [n] that may be classes, in a list; nothing if one cannot be."""
    flat = targets.reshape(len(targets), -1).numpy()
    if flat.shape[1] == 1:
        return [flat[:, 0]] if _whole_numbers(flat[:, 0], len(flat)) is not None else []
    is_one = flat == 1
    return [is_one.argmax(axis=1)] if (is_one.sum(axis=1) == 1).all() and (is_one | (flat == 0)).all() else []


def _row_digests(leaves: Sequence[Tensor]) -> NDArray[np.uint64]:
    """Return a digest of each item, [b], from its tensors [b, …]."""
    count = leaves[0].shape[0]
    parts = [leaf.contiguous().reshape(count, -1).view(torch.uint8).numpy() for leaf in leaves]
    digests = bytearray()
    for row in range(count):
        state = hashlib.blake2b(digest_size=8)
        for part in parts:
            state.update(part[row].data)
        digests += state.digest()
    return np.frombuffer(bytes(digests), np.uint64)


def _described(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"what torch cannot put into one batch with the others ({text})"


def _type_of(value: Any) -> str:
    inner = value[0] if isinstance(value, list | tuple) and value else value  # what was collated, or a list itself
    return type(value if isinstance(inner, Tensor) else inner).__name__


def _shapes(alike: Sequence[tuple[Any, ...]]) -> str:
    return ", ".join(f"{dtype}{list(shape)}".replace("torch.", "") for dtype, shape in alike)
