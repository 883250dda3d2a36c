"""Data sets of the Hugging Face hub, by the library `datasets`: from this machine's cache, or by the network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_ANSWERS_S = 10.0  # within which the hub answers, or counts as out of reach


def hub_set(name: str, configuration: str | None = None, *, revision: str | None) -> Mapping[str, Any]:
    """Return the splits of a data set by name.

    Raises:
        Exception: of many unrelated types, if there is no such set in the cache and on the hub, or no library.
    """
    import datasets

    with _asked_once(name, revision):
        splits: Mapping[str, Any] = datasets.load_dataset(name, configuration, revision=revision)
        return splits


@contextmanager
def _asked_once(name: str, revision: str | None) -> Iterator[None]:
    """Have the cache alone looked at if the hub is out of reach: its client would try six times, in half a minute."""
    import datasets
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError

    failure: Exception | None = None
    if not constants.HF_HUB_OFFLINE:
        try:
            HfApi().dataset_info(name, revision=revision, timeout=_ANSWERS_S)
        except HfHubHTTPError:
            pass  # it has answered
        except Exception as error:  # of the library by which its client asks
            failure = error
    if failure is None:
        yield
        return
    flags = ((constants, "HF_HUB_OFFLINE"), (datasets.config, "HF_HUB_OFFLINE"))
    for module, flag in flags:
        setattr(module, flag, True)
    try:
        yield
    except Exception as error:
        raise ConnectionError(f"the hub does not answer ({failure})") from error
    finally:
        for module, flag in flags:
            setattr(module, flag, False)
