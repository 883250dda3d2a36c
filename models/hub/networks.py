"""Models of `transformers` with their inputs: classifiers of images, classifiers of text, causal language models.

All are in evaluation mode, so there is no dropout, and the statistics of BatchNorm layers are those of the file: they
are frozen, whatever is trained.

The invariant: what a sample adds to a loss depends on its own content and, by rounding, on its batch; inputs are padded
with what the model does not see.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from seedbus.bounded import LARGEST_IMAGE, announced
from seedbus.models.data.untrusted import check_sides, regular
from seedbus.models.device import moved
from seedbus.models.errors import DataError
from seedbus.models.hub.rows import Row
from seedbus.models.hub.settings import HuggingFaceSettings
from seedbus.models.hub.weights import heads, selected
from seedbus.models.parameters.autocast import Autocast
from seedbus.models.parameters.storage import kept_in, quantise_frozen, widen_frozen
from seedbus.models.parameters.trained_vector import TrainedVector
from seedbus.models.text.language_network import Network, draw_lora, load, peft_model
from seedbus.models.text.problem import explain_out_of_memory, tokenizer_facts
from seedbus.models.text.tokens import Pair, collate
from seedbus.models.text.training import Lora
from seedbus.models.text.weights import within_context

Sums = dict[str, float]
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""Of images that are decoded; Pillow would start other programs for some, such as PostScript."""


class Training:
    """A model with `requires_grad` set on its trained weights, and the names that weights have in its file.

    Attributes:
        outer: the model to call, with LoRA's additions if they are trained.
    """

    def __init__(self, model: Any, task: HuggingFaceSettings, seed: int) -> None:
        model.eval().requires_grad_(False)
        parameters = dict(model.named_parameters())
        self._names = {name: _name_in_file(model, name, each) for name, each in parameters.items()}
        own = list(self._names.values())
        chosen = selected(task.train, own, is_classifier=task.classes > 0)
        body = set(own) - (heads(own) if task.classes else set())
        self.outer = _with_lora(model, task.train, self._names, body, task.name, seed)
        for name, parameter in parameters.items():
            if self._names[name] in chosen:
                parameter.data = parameter.data.float()
                parameter.requires_grad_(True)

    def name(self, name: str) -> str:
        """Return the name under which transformers or peft loads a trained parameter."""
        return self._names.get(name, name.replace(".default", ""))


def _name_in_file(model: Any, name: str, parameter: Tensor) -> str:
    """Return a parameter's name in the model's file; transformers renames some when it loads them."""
    from transformers.core_model_loading import revert_weight_conversion

    return str(next(iter(revert_weight_conversion(model, {name: parameter.data}))))


def _with_lora(model: Any, train: Any, names: dict[str, str], body: set[str], *key: int | str) -> Any:
    """Return the model with LoRA's additions if they are trained. Targets are names in the model's file."""
    if not isinstance(train, Lora):
        return model
    shapes = {names[name]: tuple(each.shape) for name, each in model.named_parameters() if names[name] in body}
    targets = train.layers(shapes)
    endings = tuple(f".{target}.weight" for target in targets)
    layers = [
        name.removesuffix(".weight") for name, own in names.items() if own in body and f".{own}".endswith(endings)
    ]
    try:
        outer = peft_model(model, "LoraConfig", r=train.rank, lora_alpha=train.alpha, target_modules=layers)
    except ValueError as error:  # a layer that peft cannot extend
        reason = str(error).strip().partition("\n")[0]
        raise DataError("task.train.targets", f"{', '.join(targets)} ({reason})", "linear layers") from error
    draw_lora(outer, *key)
    return outer


class Classifier(ABC):
    """A classifier; a subclass says how rows become inputs.

    Attributes:
        training: the model.
        trained: its trained weights.
    """

    trained: TrainedVector

    def __init__(self, task: HuggingFaceSettings, seed: int, head: str, processor: tuple[str, dict[str, Any]]) -> None:
        self.task = task
        self._model, self.processor = load(task.model, kept_in(task.dtype), head, processor)
        self._model.config.use_cache = False
        own = {name.partition(".")[0] for name in heads(name for name, _ in self._model.named_parameters())}
        parts = [part for name, part in self._model.named_children() if name in own]
        self.training = Training(self._model, task, seed)
        quantise_frozen(self.training.outer, task.dtype, leave=parts)
        widen_frozen(self.training.outer)
        self._autocast = Autocast(task.compute_dtype, lambda: self.trained.device)
        for part in parts:
            self._autocast.float32_head(part)
        self.trained = TrainedVector(self.training.outer)

    def measures(self, items: Sequence[Any], labels: Tensor) -> dict[str, Tensor]:
        """Return the sums of the metrics for each sample, [b] each.

        Args:
            items: encoded rows.
            labels: their classes, int64 [b].
        """
        logits = self.logits(items)
        return {
            "loss": cross_entropy(logits, labels, reduction="none"),
            "accuracy": logits.argmax(dim=1) == labels,
        }

    def metrics(self, sums: Sums, count: int) -> dict[str, float]:
        """Return the metrics of a split, from the sums over its samples and their number."""
        return {name: total / count for name, total in sums.items()}

    def loss(self, items: Sequence[Any], labels: Tensor) -> Tensor:
        """Return the mean cross-entropy of a batch."""
        return cross_entropy(self.logits(items), labels)

    def output(self, **inputs: Tensor) -> Tensor:
        """Return the model's logits, float32 [b, classes]."""
        with self._autocast.products():
            logits: Tensor = self.training.outer(**inputs).logits
        return logits.float()

    @abstractmethod
    def encode(self, row: Row) -> Any:
        """Return a row as an item of a batch. Raises `DataError`."""

    @abstractmethod
    def logits(self, items: Sequence[Any]) -> Tensor:
        """Return the logits of a batch, float32 [b, classes]. Raises `DataError`."""

    @abstractmethod
    def facts(self, first: Row) -> bytes:
        """Return what decides inputs beside the rows; `first` is an example of them."""


class ImageClassifier(Classifier):
    """A classifier of images. The model's own processor resizes and normalises them, by Pillow on every machine."""

    def __init__(self, task: HuggingFaceSettings, seed: int) -> None:
        super().__init__(task, seed, "AutoModelForImageClassification", ("AutoImageProcessor", {"backend": "pil"}))
        channels = getattr(self._model.config, "num_channels", 3)
        if channels != 3:
            raise DataError(f"task.model {task.model}", f"a model for {channels} channels", "a model for RGB images")

    def encode(self, row: Row) -> Tensor:
        """Return the pixels of an image, float32 [1, 3, height, width]. Raises `DataError`."""
        import PIL.Image

        file = io.BytesIO(image_bytes(self.task, row.number, row.content))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", PIL.Image.DecompressionBombWarning)
                with PIL.Image.open(file, formats=_FORMATS) as image:
                    check_sides(*image.size)
                    pixels: Tensor = self.processor(image.convert("RGB"), return_tensors="pt")["pixel_values"]
        except MemoryError:
            raise
        except Exception as error:  # for damaged files Pillow raises many unrelated types
            raise _unreadable(self.task, row.number, error) from error
        return pixels

    def logits(self, items: Sequence[Tensor]) -> Tensor:
        """See `Classifier`."""
        shapes = {tuple(item.shape) for item in items}
        if len(shapes) > 1:
            sizes = " and ".join(f"{shape[2]}×{shape[3]}" for shape in sorted(shapes)[:2])
            found = f"a processor that leaves images of {sizes}"
            raise DataError(f"task.model {self.task.model}", found, "one that gives all images the same size")
        pixels = torch.cat([moved(item, self.trained.device) for item in items])  # kept ones may lie there
        return self.output(pixel_values=pixels)

    def facts(self, first: Row) -> bytes:
        """Return the pixels that a first image becomes: another version of Pillow may round otherwise."""
        return hashlib.blake2b(self.encode(first).numpy().tobytes()).digest()


class SequenceClassifier(Classifier):
    """A classifier of texts, or of pairs of texts."""

    def __init__(self, task: HuggingFaceSettings, seed: int) -> None:
        super().__init__(task, seed, "AutoModelForSequenceClassification", ("AutoTokenizer", {}))
        self._limit = _limit(self._model, self.processor, task)
        self._rows = self._model.get_input_embeddings().weight.shape[0]

    def encode(self, row: Row) -> dict[str, list[int]]:
        """Return the tokens of a text or a pair, and of which of them each is."""
        columns, content = self.task.columns, row.content
        pair = None if columns.text_pair is None else content[columns.text_pair]
        encoding = self.processor(content[str(columns.text)], pair, truncation=True, max_length=self._limit)
        names = ("input_ids", "token_type_ids")
        return {name: list(encoding[name]) or [self.processor.pad_token_id or 0] for name in names if name in encoding}

    def length(self, item: dict[str, list[int]]) -> int:
        """The number of tokens."""
        return len(item["input_ids"])

    def logits(self, items: Sequence[dict[str, list[int]]]) -> Tensor:
        """See `Classifier`."""
        width = max(map(self.length, items))
        masks = [[1] * self.length(item) for item in items]
        pad = self._padding(items)
        self._model.config.pad_token_id = pad  # by which models without attention to the right find the end
        inputs = {
            name: _padded([item[name] for item in items], width, pad if name == "input_ids" else 0) for name in items[0]
        }
        with explain_out_of_memory((len(items), width), len(items)):
            inputs = moved(inputs | {"attention_mask": _padded(masks, width, 0)}, self.trained.device)
            return self.output(**inputs)

    def _padding(self, items: Sequence[dict[str, list[int]]]) -> int:
        """Return the tokenizer's padding token, or one that no text of the batch has. Raises `DataError`."""
        if self.processor.pad_token_id is not None:
            return int(self.processor.pad_token_id)
        used = {token for item in items for token in item["input_ids"]}
        unused = next((token for token in range(self._rows) if token not in used), None)
        if unused is None:
            found = "a tokenizer without a padding token, and a batch with all of its tokens"
            raise DataError(f"task.model {self.task.model}", found, "a tokenizer with one, or a smaller batch")
        return unused

    def facts(self, first: Row) -> bytes:
        """Return what the tokenizer does."""
        return tokenizer_facts(self.processor, special=True) + json.dumps(self.encode(first)).encode()


class CausalModel(Network):
    """A causal language model; its loss on a text is minus the mean log-likelihood of the text's tokens.

    A text follows the tokenizer's start token, if it has one; otherwise its first token is not predicted.
    """

    def __init__(self, task: HuggingFaceSettings, seed: int) -> None:
        self.task = task
        super().__init__(task, seed)

    def with_training(self, task: Any, seed: int) -> Any:
        """See `Network`."""
        self.training = Training(self._model, task, seed)
        return self.training.outer

    def encode(self, row: Row) -> Pair:
        """Return the tokens of a text, the first of them apart. Raises `DataError`."""
        begin = [] if self.tokenizer.bos_token_id is None else [self.tokenizer.bos_token_id]
        text = row.content[str(self.task.columns.text)]
        tokens = (begin + self.tokenizer(text, add_special_tokens=False)["input_ids"])[: self.context]
        if len(tokens) < 2:
            where = f"task.dataset {self.task.dataset}"
            raise DataError(where, f"a text of one token in row {row.number}", "texts of two tokens or more")
        return Pair(tokens[:1], tokens[1:])

    def length(self, item: Pair) -> int:
        """The number of tokens."""
        return item.length

    def measures(self, items: Sequence[Pair], labels: Tensor) -> dict[str, Tensor]:
        """Return "loss", and by "nats" and "tokens" what the perplexity is computed from, [b] each."""
        lengths = moved(collate(items).lengths, self.trained.device)
        scores = self._scores(items)
        return {"loss": -scores, "nats": -scores.double() * lengths, "tokens": lengths}

    def metrics(self, sums: Sums, count: int) -> dict[str, float]:
        """Return the mean loss of texts, and the perplexity of all their tokens."""
        nats = sums["nats"] / sums["tokens"]
        return {"loss": sums["loss"] / count, "perplexity": math.exp(nats) if nats < 700 else nats * math.inf}

    def loss(self, items: Sequence[Pair], labels: Tensor) -> Tensor:
        """Return the mean over texts of minus their mean log-likelihoods."""
        return -self._scores(items).mean()

    def facts(self, first: Row) -> bytes:
        """Return what the tokenizer does."""
        return tokenizer_facts(self.tokenizer, special=False)

    def _scores(self, items: Sequence[Pair]) -> Tensor:
        """Return the mean log-likelihood of each text's tokens, [b]."""
        batch = collate(items)
        with explain_out_of_memory(batch.ids.shape, len(items)):
            return self.scores(batch)


NETWORKS: dict[str, type[ImageClassifier] | type[SequenceClassifier] | type[CausalModel]] = {
    "image-classification": ImageClassifier,
    "sequence-classification": SequenceClassifier,
    "causal-lm": CausalModel,
}


def image_bytes(task: HuggingFaceSettings, number: int, content: Mapping[str, Any]) -> bytes:
    """Return a row's image as a file: its own bytes, or those at its path. Raises `DataError`."""
    stored = content[str(task.columns.image)]
    if stored["bytes"] is not None:
        return bytes(stored["bytes"])
    try:
        with regular(Path(stored["path"] or "")).open("rb") as file:
            return announced(file, os.fstat(file.fileno()).st_size, LARGEST_IMAGE, "an image")
    except (OSError, ValueError) as error:
        raise _unreadable(task, number, error) from None


def _unreadable(task: HuggingFaceSettings, number: int, error: Exception) -> DataError:
    return DataError(
        f"task.dataset {task.dataset}", f"an image in row {number} that cannot be read ({error})", "an image"
    )


def _padded(rows: Sequence[list[int]], width: int, filler: int) -> Tensor:
    return torch.tensor([row + [filler] * (width - len(row)) for row in rows])


def _limit(model: Any, tokenizer: Any, task: HuggingFaceSettings) -> int | None:
    """Return the most tokens that a text may have; None: any number. Raises `DataError`."""
    tokens, rows = len(tokenizer), model.get_input_embeddings().weight.shape[0]
    if tokens > rows:
        found = f"a tokenizer of {tokens} tokens and embeddings for {rows}"
        raise DataError(f"task.model {task.model}", found, "a tokenizer that fits")
    most = [tokenizer.model_max_length] if tokenizer.model_max_length < 2**30 else []
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions is not None and positions > 0:
        layers = [layer for name, layer in model.named_modules() if name.endswith("position_embeddings")]
        offsets = [layer.padding_idx + 1 for layer in layers if getattr(layer, "padding_idx", None) is not None]
        most.append(positions - max(offsets, default=0))  # RoBERTa's positions begin after its padding token
    return within_context(task.max_length, min(most, default=None), task.model)
