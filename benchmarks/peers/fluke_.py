"""fluke's Python interface: https://makgyver.github.io/fluke, "Quick start"."""

from __future__ import annotations

from work import CLASSES, Job, Meter, parts_of

# isort: split
from importlib.metadata import version
from typing import Any

from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from fluke.evaluation import ClassificationEval
from fluke.utils import FederationObserver

job, meter = Job.read(), Meter()


class Laps(FederationObserver):
    def end_round(self, round: int) -> None:
        meter.lap()


FlukeENV().set_seed(1)
FlukeENV().set_evaluator(ClassificationEval(eval_every=job.rounds + 1, n_classes=CLASSES))
FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
own: dict[str, Any] = {"num_labels": CLASSES, "batch_size": job.batch, "skip_singleton": False}
loaders = [FastDataLoader(*part, shuffle=True, **own) for part in parts_of(job)]
splitter = DataSplitter(DummyDataContainer(loaders, [None] * job.clients, loaders[0], CLASSES))
network = job.network()
settings = {
    "client": {
        "batch_size": job.batch,
        "local_epochs": job.epochs,
        "loss": "CrossEntropyLoss",
        "optimizer": {"name": "SGD", "lr": job.rate},
        "scheduler": {"name": "StepLR", "step_size": 1, "gamma": 1},
    },
    "server": {"weighted": True},
    "model": network,
}
federation = FedAVG(job.clients, splitter, DDict(settings))
federation.set_callbacks(Laps())
federation.run(job.rounds, job.share)
meter.report(version("fluke-fl"), job.accuracy(federation.server.model))
