"""The plan of the next epoch is made while the current one is read."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from molgcn.data.sampler import EpochPlan, MoleculeSampler


class PlanAhead:
    """Gives a sampler's plans and has the next one made in a background thread.

    Args:
        sampler: whose plans; one that does not shuffle has only one.

    Attributes:
        stage: if set, called with every new plan and its epoch in the background thread; what it returns is the plan then.
    """

    stage: Callable[[EpochPlan, int], EpochPlan] | None = None

    def __init__(self, sampler: MoleculeSampler) -> None:
        self.sampler = sampler
        self._thread = ThreadPoolExecutor(1, "molgcn-plan")
        self._plans: dict[int, Future[EpochPlan]] = {}

    def __call__(self, epoch: int) -> EpochPlan:
        """The plan of `epoch`."""
        wanted = (epoch, epoch + 1) if self.sampler.shuffle else (0,)
        self._plans = {e: self._plans.get(e) or self._thread.submit(self._plan, e) for e in wanted}
        return self._plans[wanted[0]].result()

    def _plan(self, epoch: int) -> EpochPlan:
        plan = self.sampler.plan(epoch)
        return plan if self.stage is None else self.stage(plan, epoch)
