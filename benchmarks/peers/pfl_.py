"""pfl-research's simulation: https://github.com/apple/pfl-research, benchmarks and tutorials."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from work import Job, Meter, parts_of

job, meter = Job.read(), Meter()


class Network(nn.Module):
    """The network with the two methods that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.network = job.network()

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(self.network(images), labels)

    def metrics(self, images: Tensor, labels: Tensor) -> dict[str, Any]:
        return {}


class Laps(TrainingProcessCallback):
    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Metrics]:
        meter.lap()
        return False, Metrics()


parts, network = parts_of(job), Network()
users = FederatedDataset(
    lambda user: PyTorchTensorDataset(tensors=parts[user]), get_user_sampler("minimize_reuse", list(range(job.clients)))
)
FederatedAveraging().run(
    NNAlgorithmParams(job.rounds, evaluation_frequency=job.rounds + 1, train_cohort_size=job.cohort, val_cohort_size=0),
    SimulatedBackend(users, users),
    PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), 1.0)),
    NNTrainHyperParams(local_num_epochs=job.epochs, local_learning_rate=job.rate, local_batch_size=job.batch),
    callbacks=[Laps()],
)
meter.report(version("pfl"), job.accuracy(network.network))
