import threading

import numpy as np
import pytest

from molgcn.data.plan_ahead import SHORT_EPOCH, PlanAhead
from molgcn.data.sampler import MoleculeSampler


def sampler_of(**options):
    sizes = np.random.default_rng(0).integers(1, 30, 50)
    return MoleculeSampler(sizes, 2 * sizes, 8, **options)


def assert_plan(plan, sampler, epoch):
    expected = sampler.plan(epoch)
    for name in ("order", "batch_ptr", "node_ptr", "edge_ptr", "tile_ptr", "tile_starts"):
        assert np.array_equal(getattr(plan, name), getattr(expected, name)), name


@pytest.mark.parametrize("epochs", [range(6), [0, 7, 2, 2, 3, 100, 0]])
def test_gives_the_samplers_plans_in_any_order(epochs):
    sampler = sampler_of()
    ahead = PlanAhead(sampler)
    for epoch in epochs:
        assert_plan(ahead(epoch), sampler, epoch)


def test_plans_are_made_before_they_are_asked_for(monkeypatch):
    sampler = sampler_of()
    ahead, made = PlanAhead(sampler), []
    plan = sampler.plan
    monkeypatch.setattr(sampler, "plan", lambda epoch: made.append((epoch, threading.current_thread())) or plan(epoch))
    ahead(0)
    for future in ahead._plans.values():
        future.result()
    assert sorted(epoch for epoch, _ in made) == [0, 1, 2, 3]
    assert threading.current_thread() not in {thread for _, thread in made}
    ahead(1)
    ahead._plans[4].result()
    assert sorted(epoch for epoch, _ in made) == [0, 1, 2, 3, 4]


def test_no_thread_is_left_when_the_plans_are_made():
    ahead = PlanAhead(sampler_of())
    for epoch in range(3):
        ahead(epoch)
    for thread in [thread for thread in threading.enumerate() if thread.name.startswith("molgcn-plan")]:
        thread.join(30)
        assert not thread.is_alive()
    assert all(future.done() for future in ahead._plans.values())
    assert_plan(ahead(3), ahead.sampler, 3)


def test_without_shuffling_there_is_one_plan():
    ahead = PlanAhead(sampler_of(shuffle=False))
    assert ahead(0) is ahead(5) and ahead.ahead == 0


def test_long_epochs_are_planned_one_ahead(monkeypatch):
    monkeypatch.setattr(MoleculeSampler, "share", SHORT_EPOCH + 1)
    assert PlanAhead(sampler_of()).ahead == 1


def test_a_place_is_never_given_to_two_plans_at_a_time():
    ahead = PlanAhead(sampler_of())
    busy, lock, places_seen = set(), threading.Lock(), set()

    def stage(plan, place, places):
        with lock:
            assert place not in busy and place < places
            busy.add(place)
            places_seen.add(places)
        threading.Event().wait(0.002)
        with lock:
            busy.discard(place)
        return plan

    ahead.stage = stage
    for epoch in [0, 1, 2, 9, 3, 4, 0, 17, 18]:
        ahead(epoch)
    assert places_seen == {4}


def test_an_error_while_planning_reaches_who_asks(monkeypatch):
    sampler = sampler_of()

    def fail(epoch):
        raise MemoryError

    monkeypatch.setattr(sampler, "plan", fail)
    with pytest.raises(MemoryError):
        PlanAhead(sampler)(0)
