"""A pretrained language model and its tokenizer, loaded, with what is to be trained of it marked.

What goes wrong here is nearly always a folder or a download that is not what it should be, so every error is turned
into one sentence that says what to do. The invariant: what peft draws at random is drawn anew, by key, and nothing that
a file lacks is drawn at all.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seedbus.models.errors import DataError, is_out_of_memory
from seedbus.models.parameters.flat import initial_values
from seedbus.models.parameters.trained_vector import TrainedVector, widen_frozen
from seedbus.models.streams import stream
from seedbus.models.text.training import LayerNorm, Lora, Prefix
from seedbus.models.text.weights import (
    WHAT_A_FOLDER_HOLDS,
    fetching,
    is_norm,
    place,
    source,
    unloadable,
    weights_format,
)

if TYPE_CHECKING:
    from seedbus.models.text.language_settings import LanguageModelSettings


_EXPECTED = (
    "a model that transformers knows by itself, in model.safetensors: "
    "`AutoModelForCausalLM.from_pretrained(…).save_pretrained(FOLDER)` writes it"
)


class Network:
    """A causal language model of which only logits at given places are asked for. For one thread."""

    def __init__(self, task: LanguageModelSettings, seed: int) -> None:
        model, self.tokenizer = load(task.model, task.dtype, "AutoModelForCausalLM")
        self._model = model.eval().requires_grad_(False)
        self._check_tokenizer(task.model)
        self.context = self._context(task)
        self._outer = _with_training(self._model, task, seed)
        widen_frozen(self._outer)
        self.trained = TrainedVector(self._outer)

    def logits(self, ids: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """ids [b, width] → float32 [n, vocabulary] after the tokens at (rows, columns), both [n].

        Rows are filled up at their ends: attention looks back only, so what follows a token cannot change its logits.
        """
        past = self._outer.get_prompt(len(ids)) if self._has_prefix else None
        if not self._head_is_a_product:
            logits: Tensor = self._model(input_ids=ids, past_key_values=past, use_cache=False).logits
            return logits[rows, columns].float()
        hidden = self._model.get_decoder()(input_ids=ids, past_key_values=past, use_cache=False).last_hidden_state
        head: Tensor = self._model.get_output_embeddings()(hidden[rows, columns])
        return head.float()

    def generate(self, ids: list[int], length: int, ends: list[int]) -> list[int]:
        """The greedy continuation, at most `length` tokens, up to and including the first that ends an answer."""
        asked = torch.tensor([ids])
        settings = {"max_new_tokens": length, "do_sample": False, "num_beams": 1, "eos_token_id": ends}
        with torch.inference_mode():
            found = self._outer.generate(
                input_ids=asked, attention_mask=torch.ones_like(asked), pad_token_id=ends[0], **settings
            )
        return [int(token) for token in found[0, len(ids) :]]

    @cached_property
    def _has_prefix(self) -> bool:
        return hasattr(self._outer, "get_prompt") and self._outer.active_peft_config.is_prompt_learning

    @cached_property
    def _head_is_a_product(self) -> bool:
        """Whether the head is all that stands between hidden states and logits; some models scale or cap these."""
        with torch.inference_mode():
            ids = torch.zeros((1, 2), dtype=torch.int64)
            whole = self._model(input_ids=ids, use_cache=False).logits
            hidden = self._model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
            head = self._model.get_output_embeddings()
            return hidden.shape[-1] == head.weight.shape[-1] and torch.allclose(head(hidden), whole, atol=1e-4)

    def _check_tokenizer(self, model: str) -> None:
        most, rows = len(self.tokenizer), self._model.get_input_embeddings().weight.shape[0]
        if most > rows:
            raise DataError(model, f"a tokenizer of {most} tokens and embeddings for {rows}", "a tokenizer that fits")

    def _context(self, task: LanguageModelSettings) -> int | None:
        """How many tokens there may be, prompt and answer; none: as many as one likes."""
        most = getattr(self._model.config, "max_position_embeddings", None)
        if most is not None and isinstance(task.train, Prefix):
            most -= task.train.tokens
        if most is not None and task.max_length is not None and task.max_length > most:
            raise DataError("task.max_length", f"{task.max_length} tokens", f"at most {most}, {task.model}'s context")
        return most if task.max_length is None else task.max_length


def load(model: str, dtype: str, head: str, **settings: Any) -> tuple[Any, Any]:
    """A model of transformers' class `head`, and its tokenizer. Raises `DataError`."""
    model = place(model)
    with _sentence(model):
        import transformers

        with _quiet(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(model, **source(model))
            found = getattr(transformers, head).from_pretrained(
                model,
                dtype=getattr(torch, dtype),
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **source(model),
                **weights_format(model),
                **settings,
            )
    network, report = found
    _refuse_incomplete(model, report)
    return network, tokenizer


def _refuse_incomplete(model: str, report: dict[str, Any]) -> None:
    """What a file lacks, transformers would draw at random."""
    lacking = sorted({*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])})
    if lacking:
        raise DataError(
            f"task.model {model}",
            f"no weights for {len(lacking)} of its parts ({lacking[0]}{', …' if len(lacking) > 1 else ''})",
            "a complete file of the model that config.json describes",
        )


def peft_model(network: Any, kind: str, **settings: Any) -> Any:
    """The network with peft's additions of that kind. Raises `DataError` where peft is not installed."""
    try:
        import peft
    except ImportError as error:
        raise DataError("task.train", f"no package peft ({error})", '`pip install "seedbus[hub]"`') from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one library about another's next version
        return peft.get_peft_model(network, getattr(peft, kind)(**settings))


def draw_lora(module: nn.Module, *key: int | str) -> None:
    """A as a linear layer's weight begins (uniform within ±1/√inputs), as peft does, but by key; B is 0."""
    for name, layer in module.named_modules():
        if name.endswith("lora_A.default"):
            drawn = initial_values(layer, stream("lora", name, *key))
            layer.weight.data = torch.from_numpy(drawn).view(layer.weight.shape)


def _with_training(model: Any, task: LanguageModelSettings, seed: int) -> Any:
    """The model as it is called, with `requires_grad` on what is trained."""
    train = task.train
    if isinstance(train, Lora):
        made = peft_model(
            model,
            "LoraConfig",
            r=train.rank,
            lora_alpha=train.alpha,
            target_modules=list(train.targets),
            lora_dropout=0.0,
            task_type="CAUSAL_LM",
        )
        draw_lora(made, task.name, seed)
        return made
    if isinstance(train, Prefix):
        activations = _activations(model, train.tokens, stream("prefix", task.name, seed))
        made = peft_model(model, "PrefixTuningConfig", num_virtual_tokens=train.tokens, task_type="CAUSAL_LM")
        made.prompt_encoder["default"].embedding.weight.data = torch.from_numpy(activations)
        return made
    for name, parameter in model.named_parameters():
        if not isinstance(train, LayerNorm) or is_norm(name):
            parameter.data = parameter.data.float()
            parameter.requires_grad_(True)
    return model


def _activations(model: Any, tokens: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Keys and values of random words, [tokens, layers · 2 · width], rounded to 8 bits. See `Prefix`."""
    words = torch.from_numpy(rng.integers(0, model.config.vocab_size, (1, tokens)))
    with torch.inference_mode():
        cache = copy.deepcopy(model).double()(input_ids=words, use_cache=True).past_key_values
        found = [part for layer in cache.layers for part in (layer.keys, layer.values)]
        flat = [part[0].transpose(0, 1).reshape(tokens, -1) for part in found]  # [heads, tokens, width] before
        return torch.cat(flat, dim=1).to(torch.bfloat16).float().numpy()


@contextmanager
def _sentence(model: str) -> Iterator[None]:
    """The many errors of loading, as one that says what to do."""
    expected = (
        f"a folder with {WHAT_A_FOLDER_HOLDS}, or a name on the hub that `{fetching(model)}` has fetched; "
        'and `pip install "seedbus[hub]"`'
    )
    try:
        yield
    except Exception as error:  # transformers raises unrelated types for one fact: no model came
        if is_out_of_memory(error):
            raise _too_large(model) from error
        never = unloadable(model)
        if never is not None:
            raise DataError(f"task.model {model}", never, _EXPECTED) from error
        reason = next(iter(str(error).strip().splitlines()), "")
        is_offline = os.environ.get("HF_HUB_OFFLINE") not in (None, "", "0")
        where = "nothing that can be loaded, and HF_HUB_OFFLINE is set" if is_offline else "nothing that can be loaded"
        raise DataError(f"task.model {model}", f"{where} ({type(error).__name__}: {reason})", expected) from error


def _too_large(model: str) -> DataError:
    return DataError(
        f"task.model {model}",
        "no memory to load it",
        "a smaller model, or frozen weights of 16 bits: train: {kind: lora} with dtype: bfloat16",
    )


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No progress bars and advice while loading: the run has a display of its own."""
    log = transformers.utils.logging
    level, shows = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if shows:
            log.enable_progress_bar()
