"""No two runs share a folder."""

from concurrent.futures import ThreadPoolExecutor

from omegaconf import OmegaConf

from molgcn.files.new_folder import new_folder


def test_of_many_at_once_each_gets_its_own(tmp_path):
    name = str(tmp_path / "runs" / "today")
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(new_folder, [name] * 40))
    assert sorted(made) == sorted([name, *(f"{name}_{number}" for number in range(2, 41))])
    assert {str(path) for path in (tmp_path / "runs").iterdir()} == set(made)


def test_a_run_asks_once(tmp_path):
    config = OmegaConf.create({"dir": f"${{new_folder:{tmp_path}/run}}"})
    assert config.dir == config.dir == str(tmp_path / "run")
    assert OmegaConf.create({"dir": f"${{new_folder:{tmp_path}/run}}"}).dir == str(tmp_path / "run_2")


def test_where_nothing_can_be_made_the_name_stays(tmp_path):
    (tmp_path / "file").touch()
    assert new_folder(str(tmp_path / "file" / "run")) == str(tmp_path / "file" / "run")


def test_a_shared_folder_takes_the_place_of_a_new_one(tmp_path):
    assert new_folder(str(tmp_path / "run"), "multirun/study") == "multirun/study"
    assert not list(tmp_path.iterdir())
