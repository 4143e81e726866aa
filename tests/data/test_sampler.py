from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.data.sampler import MoleculeSampler
from molgcn.errors import UserError


def make(count=50, batch_size=8, **options):
    sizes = np.random.default_rng(0).integers(1, 30, count)
    return MoleculeSampler(sizes, 2 * sizes, batch_size, **options)


def members(sampler, epoch):
    plan = sampler.plan(epoch)
    return [sorted(plan.batch(number)[0].tolist()) for number in range(len(plan))]


def test_an_epoch_is_a_permutation_that_seed_and_epoch_decide():
    batches = members(make(seed=4), 3)
    assert sorted(chain(*batches)) == list(range(50))
    assert [len(batch) for batch in batches] == [8] * 6 + [2]
    assert batches == members(make(seed=4), 3)
    assert batches != members(make(seed=4), 2) and batches != members(make(seed=5), 3)


def test_the_permutation_of_a_seed_stays_what_it_is():
    """Runs may be resumed by another version of this program."""
    assert make(count=10, batch_size=10, seed=1).molecules(0).tolist() == [8, 4, 7, 0, 1, 2, 5, 9, 6, 3]


def test_in_order_without_shuffling():
    sampler = make(shuffle=False)
    assert members(sampler, 0) == members(sampler, 1) == [list(range(i, min(i + 8, 50))) for i in range(0, 50, 8)]


def test_plan_holds_the_offsets_of_every_molecule():
    sampler = make()
    plan = sampler.plan(0)
    assert np.array_equal(np.diff(plan.node_ptr), sampler.num_nodes[plan.order])
    assert np.array_equal(np.diff(plan.edge_ptr), sampler.num_edges[plan.order])
    assert len(plan.order) == 50 and plan.node_ptr[0] == plan.edge_ptr[0] == 0


@given(st.integers(1, 60), st.integers(1, 7), st.integers(1, 20), st.booleans(), st.booleans())
def test_ranks_have_disjoint_shares(count, world_size, batch_size, shuffle, drop_last):
    if count < world_size or (drop_last and count // world_size < batch_size):
        return
    ranks = [make(count, batch_size, shuffle=shuffle, drop_last=drop_last, rank=rank, world_size=world_size) for rank in range(world_size)]
    shares = [list(chain(*members(sampler, 2))) for sampler in ranks]
    everything = list(chain(*shares))
    assert len(set(everything)) == len(everything)
    if shuffle:
        assert len({len(share) for share in shares}) == 1
    if not drop_last:
        assert len(everything) == (count // world_size * world_size if shuffle else count)
    else:
        assert all(len(share) % batch_size == 0 for share in shares)


@given(st.integers(1, 60), st.integers(1, 3), st.integers(1, 20), st.integers(0, 3))
def test_a_single_molecule_left_over_joins_the_batch_before(count, world_size, batch_size, epoch):
    """All ranks do the same, and all other epochs stay as they are."""
    if count < world_size:
        return
    for rank in range(world_size):
        options = {"rank": rank, "world_size": world_size, "seed": 3}
        joined, apart = make(count, batch_size, join_single=True, **options), make(count, batch_size, **options)
        mine, right = members(joined, epoch), members(apart, epoch)
        if batch_size < joined.share and joined.share % batch_size == 1:
            right = [*right[:-2], sorted(right[-2] + right[-1])]
        assert mine == right and len(joined) == len(mine)
        assert max(map(len, mine)) <= joined.largest_batch <= batch_size + 1
        assert batch_size == 1 or joined.share == 1 or min(map(len, mine)) > 1


def test_epochs_follow_each_other_and_set_epoch_chooses():
    sampler = make()
    assert sampler.begin() == 0 and sampler.epoch == 0
    for _ in range(len(sampler)):
        sampler.advance()
    assert sampler.begin() == 0 and sampler.epoch == 1
    sampler.advance()
    assert sampler.begin() == 0 and sampler.epoch == 1  # broken off: the same epoch again
    sampler.set_epoch(9)
    assert sampler.begin() == 0 and sampler.epoch == 9


def test_resumes_between_batches():
    sampler, other = make(seed=7), make(seed=7)
    sampler.set_epoch(2)
    sampler.begin()
    for _ in range(3):
        sampler.advance()
    other.load_state_dict(sampler.state_dict())
    other.set_epoch(2)  # as Lightning does before every epoch
    assert other.begin() == 3 and other.epoch == 2
    assert other.begin() == 0


def test_a_state_at_the_end_of_an_epoch_goes_on_with_the_next():
    sampler, other = make(), make()
    sampler.begin()
    for _ in range(len(sampler)):
        sampler.advance()
    other.load_state_dict(sampler.state_dict())
    assert other.begin() == 0 and other.epoch == 1


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"seed": 1}, "seed=0"),
        ({"batch_size": 9}, "dataset.batch_size=8"),
        ({"count": 51}, "molecules=50"),
    ],
)
def test_refuses_the_state_of_a_run_with_other_batches(change, name):
    with pytest.raises(UserError, match=name):
        make(**change).load_state_dict(make().state_dict())


@given(
    count=st.integers(9, 120),
    worlds=st.tuples(*[st.integers(1, 4)] * 3),
    batch_size=st.integers(1, 9),
    drop_last=st.booleans(),
    data=st.data(),
)
def test_other_ranks_go_on_with_the_molecules_that_were_not_read(count, worlds, batch_size, drop_last, data):
    """Each molecule of the epoch is read once, but for those of a remainder that does not suffice for all ranks."""
    options = {"drop_last": drop_last and count // max(worlds) >= batch_size, "seed": 3}
    read, state = [], None
    for number, world_size in enumerate(worlds):
        ranks = [make(count, batch_size, rank=rank, world_size=world_size, **options) for rank in range(world_size)]
        if state is not None:
            for rank in ranks:
                rank.load_state_dict(state)
        first = {rank.begin() for rank in ranks}
        assert len(first) == 1 and {len(rank.plan(rank.epoch)) for rank in ranks} == {len(ranks[0])}
        if ranks[0].epoch > 0:  # the epoch was over
            assert first == {0}
            break
        batches = len(ranks[0]) - min(first)
        taken = batches if number == 2 else data.draw(st.integers(0, batches))
        for rank in ranks:
            plan = rank.plan(0)
            assert plan.room == len(rank.plan(1).order) >= len(plan.order)  # buffers are made for the first plan
            for batch in range(min(first), min(first) + taken):
                molecules, tile_ptr = plan.batch(batch)
                assert 0 < len(molecules) <= batch_size + 1 and tile_ptr[-1] == len(molecules)
                read += molecules.tolist()
                rank.advance()
        state = ranks[0].state_dict()
    order = make(count, batch_size, seed=3).molecules(0)
    again = len(read) - len(set(read))
    assert again < max(worlds)  # where fewer are left than there are ranks
    assert set(read) == set(order[: len(set(read))].tolist())


def test_is_a_batch_sampler():
    sampler = make(count=20)
    assert [sorted(batch) for batch in sampler] == members(sampler, 0)
    assert all(isinstance(i, int) for batch in sampler for i in batch)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"batch_size": 0}, "dataset.batch_size=0"),
        ({"seed": -1}, "seed=-1"),
        ({"tile_nodes": 0}, "tile_nodes=0: expected 1 to 128"),
        ({"tile_nodes": 129}, "tile_nodes=129: expected 1 to 128"),
        ({"count": 3, "world_size": 4}, "3 molecules cannot be shared by 4"),
        ({"count": 7, "drop_last": True}, "7 molecules cannot fill a batch of 8"),
    ],
)
def test_bad_options(options, match):
    with pytest.raises(UserError, match=match):
        make(**options)


def test_rank_outside_the_world():
    with pytest.raises(ValueError, match="rank 2"):
        make(rank=2, world_size=2)


def test_balanced_epochs_have_equally_many_of_each_class():
    classes = np.array([0] * 40 + [1] * 5 + [2] * 2 + [np.nan] * 3)
    sampler = make(seed=4, classes=classes)
    drawn = sampler.molecules(0)
    assert len(drawn) == 50 and sampler.repeats
    assert [(classes[drawn] == one).sum() for one in range(3)] == [17, 17, 16]
    assert set(drawn[classes[drawn] == 2]) == {45, 46}
    assert np.array_equal(drawn, make(seed=4, classes=classes).molecules(0))
    assert not np.array_equal(drawn, sampler.molecules(1))
    assert not make(shuffle=False, classes=classes).repeats
    assert np.array_equal(make(shuffle=False, classes=classes).molecules(0), np.arange(50))


def test_ranks_share_a_balanced_epoch():
    classes = np.arange(50) % 10 // 9
    ranks = [make(seed=4, classes=classes.astype(float), rank=rank, world_size=2).molecules(3) for rank in range(2)]
    assert [len(share) for share in ranks] == [25, 25]
    assert classes[np.concatenate(ranks)].sum() == 25
