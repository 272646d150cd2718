"""A measured figure beside its calibration and its bounds."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figure:
    name: str
    unit: str
    measured: float
    calibration: float
    """The same quantity without haltline, in the same minute."""
    calibrated_by: str
    at_least: float | None
    """Bound on `measured` (design 11); None: no bound."""
    aim: float | None
    samples: int

    @property
    def holds(self) -> bool:
        return self.at_least is None or self.measured <= self.at_least

    @property
    def ratio(self) -> float:
        return self.measured / self.calibration if self.calibration else float("nan")

    def row(self) -> str:
        mark = "ok  " if self.holds else "MISS"
        bound = "-" if self.at_least is None else f"{self.at_least:g}"
        aim = "-" if self.aim is None else f"{self.aim:g}"
        return (
            f"{mark} {self.name:<64} {self.measured:9.2f} {self.unit:<3} (bound {bound}, aim {aim}; "
            f"{self.ratio:.1f} x {self.calibrated_by} {self.calibration:.2f}; n={self.samples})"
        )

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "ratio": self.ratio, "holds": self.holds}


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of the values lie; nearest rank."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]
