"""BlazeFL's federated averaging, one client after the other: https://github.com/kitsuyaazuma/blazefl, examples."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from typing import Any

from blazefl.contrib.fedavg import FedAvgBaseClientTrainer, FedAvgBaseServerHandler
from torch import Generator, nn
from torch.utils.data import DataLoader, TensorDataset
from work import Job, Meter, parts_of

job, meter = Job.read(), Meter()


class Selector:
    def select_model(self, name: str) -> nn.Module:
        return job.network()


class Parts:
    """The clients' samples, with the method of BlazeFL's partitioned datasets."""

    def __init__(self) -> None:
        self._own = [TensorDataset(*part) for part in parts_of(job)]

    def get_dataloader(
        self, type_: str, cid: int, batch_size: int, generator: Generator | None = None
    ) -> DataLoader[Any]:
        return DataLoader(self._own[cid], batch_size, shuffle=True, generator=generator)


class Trainer(FedAvgBaseClientTrainer):
    def train(self, *arguments: Any) -> Any:
        return replace(super().train(*arguments), data_size=job.samples)  # it is 0 after no step


parts = Parts()
handler = FedAvgBaseServerHandler(Selector(), "", parts, job.rounds, job.clients, job.share, "cpu", job.batch, seed=1)
trainer = Trainer(Selector(), "", parts, "cpu", job.clients, job.epochs, job.batch, job.rate, seed=1)
while not handler.if_stop():
    sampled, broadcast = handler.sample_clients(), handler.downlink_package()
    trainer.local_process(broadcast, sampled)
    for package in trainer.uplink_package():
        handler.load(package)
    meter.lap()
meter.report(version("blazefl"), job.accuracy(handler.model))
