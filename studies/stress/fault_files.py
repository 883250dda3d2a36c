"""Faults of random scenarios that follow files, and the text of these files."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from seedbus.scenarios.faults.base import FAULTS
from seedbus.studies.stress.draws import SPAN_S, Chooser, instance


def files(drawn: dict[str, Any]) -> dict[str, str]:
    """Return the files that the faults of a drawn scenario follow: name → text."""
    followed = [fault for fault in drawn["faults"] if "file" in fault]
    return {
        fault["file"]: _file(Chooser(drawn["seed"], fault["file"]), fault, drawn["participation"]["clients"])
        for fault in followed
    }


def followed(choose: Chooser, drawn: dict[str, Any]) -> list[dict[str, Any]]:
    """Return faults that follow files."""
    faults = []
    clients, rounds = drawn["participation"]["clients"], drawn["stop"]["rounds"]
    for name, kind in FAULTS.all().items():
        if follows_file(kind) and choose.chance(0.1):
            fault = instance(kind, choose, clients, rounds)
            if fault is not None:
                if fault.get("every_s") is not None:
                    fault["every_s"] = choose.scale(*SPAN_S)
                faults.append(fault | {"file": f"{drawn['name']}-{name}.csv"})
    return faults


def _file(choose: Chooser, fault: dict[str, Any], clients: int) -> str:
    """Return the text of a file: lines of clients, or of devices."""
    owner = choose.one(("client", "device"))
    owners: set[Any] = {"slow", "fast", "odd"}
    if owner == "client":
        owners = {choose.whole(0, clients - 1) for _ in range(clients)}
    end_s = fault.get("every_s") or choose.scale(*SPAN_S)
    lines = []
    for each in sorted(owners):
        if fault["fault"] == "device-speeds":
            lines.append(f"{each},{choose.scale(0.01, 20)}")
            continue
        parts = sorted({choose.whole(0, 9) for _ in range(choose.whole(1, 5))})
        for part in parts:
            from_s = end_s * part / 10
            if fault["fault"] == "trace":
                lines.append(f"{each},{from_s},{from_s + (end_s - from_s) * choose.one((0.05, 0.1, 0.5, 1.0))}")
            else:
                least = 0 if part < parts[-1] else 1  # a link's last speed may not be 0
                up, down = (("0", "", str(choose.scale(1e-3, 10)))[choose.whole(least, 2)] for _ in range(2))
                lines.append(f"{each},{from_s},{up},{down}")
    columns = {"trace": "from_s,to_s", "link-trace": "from_s,up_mbps,down_mbps", "device-speeds": "factor"}
    return "\n".join([f"{owner},{columns[fault['fault']]}", *lines, ""])


def follows_file(fault: type[BaseModel]) -> bool:
    return "file" in fault.model_fields
