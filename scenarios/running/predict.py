"""Apply an exported model to new samples, with the preprocessing that its file has.

The file may be anybody's: it is data that is checked, and no code of it is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from seedbus.bus.text import printable
from seedbus.models.data.batches import parts
from seedbus.models.data.untrusted import safetensors_header
from seedbus.models.errors import DataError
from seedbus.models.numeric_state import numeric_state, use_one_thread
from seedbus.models.preprocessing import KEY, Preprocessing
from seedbus.scenarios.errors import not_accepted, path_of
from seedbus.scenarios.reporting.terminal import note

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray
    from torch import Tensor, nn

    Batches = Iterator[NDArray[np.float32]]

_BLOCK = 4  # batches of rows that become numbers together; one by one they take three times as long
_YOUR_OWN = "of a network of your own, seedbus.replay(RUN, task=TASK).network() predicts"
_WRITTEN = "a model that `seedbus export RUN --out FILE` has written"
_ROWS = "the name of a CSV or Parquet file, or a list of mappings from columns to cells"
_TEXTS = "the name of a CSV, TSV or JSON lines file, or a list of mappings from columns to cells, or of texts"


@numeric_state()
def predict(model: str | Path, samples: str | Path | Sequence[Any]) -> pd.DataFrame:
    """Apply the model of a table, of a folder of images, or of owners' texts, to new samples.

    New rows are read as those of the training part were: a text that the training part did not have is none of its
    texts, an empty cell is a text, and a column of numbers has a number in every row. Columns that the model does not
    read are passed over. Of texts that differ from those of the training part only in upper and lower case or spaces,
    a note on stderr tells.

    Args:
        model: a file that `seedbus export RUN --out FILE` or `Replayed.save` has written.
        samples: of a table a CSV or Parquet file, or a list of mappings from columns to cells, as `csv.DictReader`
            yields them (None: an empty cell); of a folder of images a list of files; of owners' texts a file as they
            have, mappings, or of one column a list of texts.

    Returns:
        A row for each sample, in their order, with the probability of each class in a column of its name, so that
        `.idxmax(axis=1)` is the likeliest class; of a regression one column, the target in its own unit. Those of a
        causal model are the softmax of the mean log-likelihoods of its answers.

    Raises:
        DataError: the file is none of a model that can be applied so, or a sample cannot be read.
        ScenarioError: an argument is not accepted.
    """
    import pandas as pd

    path = path_of(model, "model", "the name of a file")
    about, tensors = _read(path)
    use_one_thread()
    try:
        outputs = (_of_inputs if about.settings is None else _of_texts)(path, about, tensors, samples)
    except DataError as error:  # whose words may be the file's
        raise type(error)(printable(error.where), printable(error.found), printable(error.expected)) from None
    if (number := about.number) is not None:
        return pd.DataFrame(outputs.numpy() * number.deviation + number.mean, columns=[number.name])
    return pd.DataFrame(outputs.softmax(dim=1).numpy(), columns=list(about.classes or ()))


def _read(path: Path) -> tuple[Preprocessing, dict[str, Tensor]]:
    """Return what a file tells of its model, and the model's tensors. Raises `DataError`."""
    import torch
    from safetensors import SafetensorError, safe_open

    try:
        safetensors_header(path)  # whose size is believed after a look only
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys() if not name.startswith("seedbus.")}
        about = None if text is None else Preprocessing.of(text)
    except (OSError, SafetensorError, TypeError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise DataError(path, f"a file that cannot be read ({printable(why)})", _WRITTEN) from None
    if about is None:
        raise DataError(path, f"a model without {KEY}", f"{_WRITTEN} of a task that tells of it; {_YOUR_OWN}")
    if any(tensor.dtype != torch.float32 for tensor in tensors.values()):
        raise DataError(path, "tensors that are not float32", _WRITTEN)
    return about, tensors


def _of_texts(path: Path, about: Preprocessing, tensors: Mapping[str, Tensor], samples: Any) -> Tensor:
    """Return the outputs for new texts, float64 [n, outputs]. Raises `DataError`, `ScenarioError`."""
    import torch

    from seedbus.models.text.new_texts import outputs_of

    return torch.from_numpy(outputs_of(path, about, tensors, _given(samples, _TEXTS, str)))


def _of_inputs(path: Path, about: Preprocessing, tensors: Mapping[str, Tensor], samples: Any) -> Tensor:
    """Return the outputs for new rows or images, float64 [n, outputs]. Raises `DataError`, `ScenarioError`."""
    import torch

    batches, network = (_of_table if about.columns is not None else _of_images)(path, about, tensors, samples)
    try:
        network.load_state_dict(tensors, assign=True)
    except RuntimeError:
        raise DataError(path, f"tensors of another network than the {about.model} of its {KEY}", _WRITTEN) from None
    with torch.inference_mode():
        return torch.cat([network.eval()(torch.from_numpy(batch)) for batch in batches]).double()


def _given(samples: Any, accepted: str, *others: type) -> Any:
    """Return samples: the path of a file, or a list of mappings or of `others`. Raises `ScenarioError`."""
    if isinstance(samples, str | PurePath):
        return path_of(samples, "samples", accepted)
    if isinstance(samples, list | tuple) and all(isinstance(row, (Mapping, *others)) for row in samples):
        return samples
    raise not_accepted(samples, "samples", accepted)


def _of_table(
    path: Path, about: Preprocessing, tensors: Mapping[str, Tensor], samples: Any
) -> tuple[Batches, nn.Module]:
    """Return the inputs of new rows, [b, inputs] each, which are read one by one, and the network without its values.

    Raises:
        DataError, ScenarioError: as `predict`.
    """
    import torch

    from seedbus.models.images.networks import perceptron
    from seedbus.models.images.sample_problem import EVALUATION_BATCH
    from seedbus.models.tables.new_rows import inputs_of

    rows = _given(samples, _ROWS)
    if about.layers is None:
        raise _not_ours(path, about)
    hidden = [tensors.get(f"{layer}.bias", torch.empty(0)).numel() for layer in about.layers[:-1]]
    columns = about.columns or ()
    blocks = inputs_of(rows, columns, about.separator or ",", _BLOCK * EVALUATION_BATCH, note)
    batches = (block[span] for block in blocks for span in parts(len(block), EVALUATION_BATCH))
    with torch.device("meta"):
        return batches, perceptron(sum(len(column.inputs) for column in columns), *hidden, about.outputs)


def _of_images(path: Path, about: Preprocessing, _: object, samples: Any) -> tuple[Batches, nn.Module]:
    """Return the inputs of images, [b, channels, height, width] each, and the network without its values.

    Raises:
        DataError, ScenarioError: as `predict`.
    """
    import torch

    from seedbus.models.images.folder import LEAST_SIZE, MODELS, decoded
    from seedbus.models.images.networks import of_squares
    from seedbus.models.images.sample_problem import EVALUATION_BATCH
    from seedbus.models.images.task import normalised

    image = about.image
    if about.task != "image-folder" or image is None:
        raise DataError(path, f"a model of task {about.task}", "one of task table or image-folder")
    if min(image.height, image.width) < LEAST_SIZE:
        raise DataError(
            path, f"images of {image.height} × {image.width} pixels", f"{LEAST_SIZE} × {LEAST_SIZE} at least"
        )
    if about.model not in MODELS:
        raise _not_ours(path, about)
    if not isinstance(samples, list | tuple):
        raise not_accepted(samples, "samples", "a list of names of PNG or JPEG files")
    files = [path_of(each, "samples", "a list of names of PNG or JPEG files") for each in samples]

    def inputs(span: slice) -> NDArray[np.float32]:
        pixels = decoded(files[span], image.height, image.channels)
        return normalised(pixels, image.white, image.mean, image.deviation).transpose(0, 3, 1, 2)

    with torch.device("meta"):
        return map(inputs, parts(len(files), EVALUATION_BATCH)), of_squares(
            about.model, image.channels, image.height, about.outputs
        )


def _not_ours(path: Path, about: Preprocessing) -> DataError:
    return DataError(path, f"the network {about.model}", f"a network of Seedbus; {_YOUR_OWN}")
