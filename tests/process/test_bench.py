"""The figures of stopping can be measured: each comes with its calibration and its bound. How large they are is what
`bin/bench` is for."""

from __future__ import annotations

import math

import pytest
from bench import stopping


@pytest.mark.ci
def test_every_promise_about_a_stop_has_a_figure() -> None:
    figures = list(stopping.measure(stopping.Counts(prompts=3, trees=2, runs=2, slow=1)))
    assert all(math.isfinite(one.measured) and one.measured > 0 and one.calibration > 0 for one in figures)
    bounds = [one.at_least for one in figures if one.at_least is not None]
    per_isolation = [15, 15, 60, 100, 30]
    assert sorted(bounds) == sorted([5, 2300, 1000, 2300, 300, *per_isolation * len(stopping.ISOLATIONS)])
