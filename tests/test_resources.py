from pathlib import Path

from molgcn.resources import resource


def test_files_beside_the_package_are_found():
    assert (resource("conf") / "train.yaml").is_file()
    assert (resource("data") / "molecules.csv").is_file()
    assert any(resource("cuda").glob("*.cu"))


def test_cuda_folder_does_not_hide_nvidia_s_namespace_package():
    from cuda import bindings

    assert Path(bindings.__file__).is_relative_to(Path(__file__).parents[1] / "cuda") is False
    names = {path.name for path in resource("cuda").iterdir()}
    assert not names & {"core", "bindings", "pathfinder", "__init__.py"}
    assert not list(resource("cuda").rglob("*.py"))
