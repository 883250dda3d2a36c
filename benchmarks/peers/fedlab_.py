"""FedLab's standalone simulation: https://fedlab.readthedocs.io/en/master/tutorials/tutorial.html."""

from __future__ import annotations

from work import Job, Meter, parts_of

# isort: split
from typing import Any

import fedlab
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
from fedlab.core.standalone import StandalonePipeline
from torch.utils.data import DataLoader, TensorDataset

job, meter = Job.read(), Meter()


class Parts:
    """The clients' samples, with the method of FedLab's datasets."""

    def __init__(self) -> None:
        self._own = [TensorDataset(*part) for part in parts_of(job)]

    def get_dataloader(self, client: int, batch_size: int) -> DataLoader[Any]:
        return DataLoader(self._own[client], batch_size, shuffle=True)


class Pipeline(StandalonePipeline):
    def evaluate(self) -> None:
        meter.lap()


handler = FedAvgServerHandler(job.network(), job.rounds, job.share)
trainer = FedAvgSerialClientTrainer(job.network(), job.clients)
trainer.setup_dataset(Parts())
trainer.setup_optim(job.epochs, job.batch, job.rate)
Pipeline(handler, trainer).main()
meter.report(fedlab.__version__, job.accuracy(handler.model))
