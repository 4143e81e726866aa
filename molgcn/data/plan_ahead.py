"""Plans of the next epochs, made in the background."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import Condition, Thread

from molgcn.data.sampler import EpochPlan, MoleculeSampler

SHORT_EPOCH = 1_000_000  # molecules
_IDLE = 0.25  # seconds that the thread waits for the next epoch; to start one takes as long as a step, and longer on a busy machine


class PlanAhead:
    """Returns a sampler's plans, and makes the next ones in a background thread.

    Making a plan takes about 30 ns for each molecule. A GPU may read a short epoch faster, so short epochs are planned three ahead. Long
    epochs are planned one ahead, since plans take memory. The thread ends where no epoch follows for a quarter of a second.

    Args:
        sampler: the sampler. If it does not shuffle, all epochs have the same plan.
    """

    # function that replaces every new plan, or None. It is called in the background with the plan, a number that no other plan in use has,
    # and the number of such numbers, and returns the plan to use
    stage: Callable[[EpochPlan, int, int], EpochPlan] | None = None

    def __init__(self, sampler: MoleculeSampler) -> None:
        self.sampler = sampler
        # number of epochs that are planned before they are asked for
        self.ahead = (3 if sampler.share <= SHORT_EPOCH else 1) if sampler.shuffle else 0
        self._plans: dict[int, Future[EpochPlan]] = {}
        self._asked: deque[tuple[int, Future[EpochPlan]]] = deque()
        self._changed = Condition()
        self._works = False  # whether there is a thread that will look at what is asked

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
        asked = epoch, Future[EpochPlan]()
        with self._changed:
            self._asked.append(asked)
            self._changed.notify()
            starts, self._works = not self._works, True
        if starts:
            Thread(target=self._work, name="molgcn-plan").start()
        return asked[1]

    def _work(self) -> None:
        """Make the plans that are asked for, in their order."""
        while True:
            with self._changed:
                self._works = bool(self._changed.wait_for(lambda: self._asked, _IDLE))
                if not self._works:
                    return
                epoch, plan = self._asked.popleft()
            try:
                plan.set_result(self._plan(epoch))
            except BaseException as error:
                plan.set_exception(error)

    def _plan(self, epoch: int) -> EpochPlan:
        plan, places = self.sampler.plan(epoch), self.ahead + 1
        plan = plan if self.stage is None else self.stage(plan, epoch % places, places)
        _ = plan.spans  # computed here, in the background
        return plan
