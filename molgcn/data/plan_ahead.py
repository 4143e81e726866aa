"""Plans of the next epochs, made in the background."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from molgcn.data.sampler import EpochPlan, MoleculeSampler

SHORT_EPOCH = 1_000_000  # molecules


class PlanAhead:
    """Returns a sampler's plans, and makes the next ones in background threads.

    Making a plan takes about 30 ns for each molecule. A GPU may read a short epoch faster, so short epochs are planned three ahead. Long
    epochs are planned one ahead, since plans take memory. Each plan is made in its own thread, and no thread is left when a run ends.

    Args:
        sampler: the sampler. If it does not shuffle, all epochs have the same plan.

    Attributes:
        ahead: number of epochs that are planned before they are asked for.
        stage: function that replaces every new plan, or None. It is called in the background with the plan, a number that no other plan in
            use has, and the number of such numbers, and returns the plan to use.
    """

    stage: Callable[[EpochPlan, int, int], EpochPlan] | None = None

    def __init__(self, sampler: MoleculeSampler) -> None:
        self.sampler = sampler
        self.ahead = (3 if sampler.share <= SHORT_EPOCH else 1) if sampler.shuffle else 0
        self._plans: dict[int, Future[EpochPlan]] = {}

    def __call__(self, epoch: int) -> EpochPlan:
        """Return the plan of `epoch`. Plans returned by earlier calls are no longer in use."""
        first = epoch if self.sampler.shuffle else 0
        wanted = range(first, first + 1 + self.ahead)
        for other in self._plans.keys() - set(wanted):
            self._plans[other].result()
        self._plans = {e: self._plans.get(e) or self._start(e) for e in wanted}
        return self._plans[first].result()

    def forget(self) -> None:
        """Make plans anew, since the sampler goes on elsewhere."""
        for plan in self._plans.values():
            plan.result()
        self._plans = {}

    def _start(self, epoch: int) -> Future[EpochPlan]:
        thread = ThreadPoolExecutor(1, "molgcn-plan")
        try:
            return thread.submit(self._plan, epoch)
        finally:
            thread.shutdown(wait=False)  # the plan is still made

    def _plan(self, epoch: int) -> EpochPlan:
        plan, places = self.sampler.plan(epoch), self.ahead + 1
        plan = plan if self.stage is None else self.stage(plan, epoch % places, places)
        _ = plan.spans  # computed here, in the background
        return plan
