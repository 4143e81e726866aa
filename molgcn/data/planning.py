"""The plans of the next epochs are made while the current one is read."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from molgcn.data.sampler import EpochPlan, MoleculeSampler

SHORT_EPOCH = 1_000_000


class PlanAhead:
    """Gives a sampler's plans and has the next ones made in background threads.

    A plan costs some 30 ns a molecule. A GPU may read a short epoch faster than that, so short epochs are planned three ahead, long ones
    one ahead, since plans take memory. Each plan has a thread, which ends with it: none is left when a run is over.

    Args:
        sampler: whose plans; one that does not shuffle has only one.

    Attributes:
        ahead: epochs that are planned before they are asked for.
        stage: if set, called in the background with every new plan, a number below the third argument that no plan in use or in making
            has, and how many such numbers there are; what it returns is the plan then.
    """

    stage: Callable[[EpochPlan, int, int], EpochPlan] | None = None

    def __init__(self, sampler: MoleculeSampler) -> None:
        self.sampler = sampler
        self.ahead = (3 if sampler.share <= SHORT_EPOCH else 1) if sampler.shuffle else 0
        self._plans: dict[int, Future[EpochPlan]] = {}

    def __call__(self, epoch: int) -> EpochPlan:
        """The plan of `epoch`; those asked for before are no longer in use."""
        first = epoch if self.sampler.shuffle else 0
        wanted = range(first, first + 1 + self.ahead)
        for other in self._plans.keys() - set(wanted):
            self._plans[other].result()
        self._plans = {e: self._plans.get(e) or self._start(e) for e in wanted}
        return self._plans[first].result()

    def _start(self, epoch: int) -> Future[EpochPlan]:
        thread = ThreadPoolExecutor(1, "molgcn-plan")
        try:
            return thread.submit(self._plan, epoch)
        finally:
            thread.shutdown(wait=False)  # it makes the plan all the same

    def _plan(self, epoch: int) -> EpochPlan:
        plan, places = self.sampler.plan(epoch), self.ahead + 1
        plan = plan if self.stage is None else self.stage(plan, epoch % places, places)
        _ = plan.spans  # looked up here, in the background
        return plan
