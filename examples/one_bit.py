"""An algorithm of your own: DeComFL whose clients report one bit for each direction, its sign.

    python examples/one_bit.py

The same file is a plug-in: `seedbus run quickstart --plugin examples/one_bit.py --set algorithm=one-bit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

import seedbus
from seedbus.plugin import BadPayload, Packed, ScalarOnly, load_plugin


class OneBit(ScalarOnly):
    """DeComFL with the sign of each scalar, as in signSGD (arXiv:1802.04434), in one bit on the wire."""

    name: Literal["one-bit"] = "one-bit"

    def reported(self, scalars: Sequence[float]) -> Sequence[float]:
        return [1.0 if scalar > 0 else -1.0 for scalar in scalars]

    def pack_report(self, plan: Any, report: Any) -> Packed:
        return Packed([np.packbits(report > 0).tobytes()], scalars=report.size)

    def unpack_report(self, body: Any, plan: Any) -> Any:
        steps, perturbations = plan.shape
        size = -(-steps * perturbations // 8)
        if not (isinstance(body, list) and len(body) == 1 and isinstance(body[0], bytes) and len(body[0]) == size):
            raise BadPayload(f"a report is not {size} bytes")
        bits = np.unpackbits(np.frombuffer(body[0], np.uint8))[: steps * perturbations]
        return (2 * bits.astype(np.float32) - 1).reshape(plan.shape)


def main() -> None:
    load_plugin(__file__)
    print(f"{'algorithm':<10}{'accuracy':>10}{'bytes a report':>16}")
    for name, rate in (("decomfl", 0.05), ("one-bit", 0.1)):
        settings = [f"algorithm={name}", f"algorithm.learning_rate={rate}", "algorithm.perturbations=20"]
        scenario = seedbus.load("quickstart", [*settings, "stop.rounds=200", "verify=false"])
        results = seedbus.run(scenario)
        reports = results.summary["traffic"]["by_kind"]["report"]
        accuracy, size = results.metrics["accuracy"].iloc[-1], reports["bytes"] / reports["messages"]
        print(f"{name:<10}{accuracy:>10.1%}{size:>16.1f}")


if __name__ == "__main__":
    main()
