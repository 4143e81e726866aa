from types import SimpleNamespace

from molgcn.training.ranks import of_all_ranks, of_this_rank


def test_one_process_asks_nobody():
    trainer = SimpleNamespace(world_size=1, global_rank=0)
    assert of_this_rank(trainer, of_all_ranks(trainer, {"x": 1})) == {"x": 1}


def test_each_process_takes_its_own():
    assert [of_this_rank(SimpleNamespace(world_size=2, global_rank=rank), ["a", "b"]) for rank in (0, 1)] == ["a", "b"]


def test_a_process_more_than_before_has_none():
    assert of_this_rank(SimpleNamespace(world_size=2, global_rank=1), ["a"]) is None
