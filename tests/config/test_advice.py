"""What a message advises to type is right when it is typed, also for columns with spaces, brackets, quotes and other letters."""

import csv
import re
import shlex

import pytest

from molgcn.files.json_file import read_json

SMILES, NUMBER, WORDS, KINDS, WEIGHT = "Canonical SMILES", "Solubility (uM)", "it's toxic?", "kind: µ, $x", "weight [1/s]"
FAST = ["model.hidden_channels=8", "model.num_layers=2", "trainer.max_epochs=1", "logger=csv", "training.report=false", "recipe=plain"]
ADVICE = re.compile(r"(?:as in|number them:) (.+?)(?:, when it|, where|\.$| \(task=)")


@pytest.fixture
def table(tmp_path):
    """Write a table whose columns have such names, and return the arguments that read it."""
    with open(tmp_path / "x.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([SMILES, NUMBER, WORDS, KINDS, WEIGHT])
        for n in range(60):
            end = "ONF"[n % 3]
            writer.writerow(["C" * (n % 10 + 1) + end, n + 1, ["no (safe)", "yes: 'x'"][n % 2], n % 2, 1 + n % 2])
    return [*FAST, "dataset=csv", "dataset.path=x.csv", f"dataset.smiles={SMILES}"]


def follow(cli, arguments, most):
    """Follow the advice of each error until the command succeeds, and return what was typed beside the arguments."""
    followed = []
    for _ in range(most + 1):
        given = {argument.partition("=")[0]: argument for argument in [*arguments, *followed]}
        code, _, errors = cli(*given.values())
        if code == 0:
            return followed
        followed += shlex.split(ADVICE.search(errors.strip().splitlines()[-1])[1])
    raise AssertionError(errors)


@pytest.mark.parametrize(
    ("typed", "advised"),
    [
        ([f"dataset.targets=[{NUMBER}]"], ["dataset.targets"]),
        ([f"dataset.targets='{NUMBER}'", "dataset.units={Solubility (uM): a: b}"], ["dataset.units"]),
        ([f'dataset.targets=["{WORDS}"]'], ["dataset.labels"]),
        ([f'dataset.targets=["{NUMBER}","{KINDS}"]', "task=mixed"], ["dataset.tasks"]),
        ([f"dataset.targets='{NUMBER}'", "logger=wandb", "logger.run_name=it's (1), $x"], ["logger.run_name"]),
    ],
)
def test_advice_can_be_followed(typed, advised, table, cli):
    followed = follow(cli, [*table, *typed], len(advised))
    assert [argument.partition("=")[0] for argument in followed] == advised


def test_columns_of_any_name(table, cli, tmp_path):
    options = [
        f'dataset.targets=["{NUMBER}","{KINDS}"]',
        f'dataset.units={{"{NUMBER}": uM}}',
        f'dataset.transforms={{"{NUMBER}": log10}}',
        f'dataset.tasks={{"{NUMBER}": regression, "{KINDS}": classification}}',
        f'training.task_weights={{"{NUMBER}": 2, "{KINDS}": 0.5}}',
        f"training.monitor=val/mae/{NUMBER}",
        f"dataset.weights={WEIGHT}",
    ]
    code, _, errors = cli(*table, *options, "hydra.run.dir=run")
    assert code == 0, errors
    result = read_json(tmp_path / "run" / "result.json")
    assert (result["names"], result["units"], result["monitor"]) == ([NUMBER, KINDS], ["uM", ""], f"val/mae/{NUMBER}")
    assert result["tasks"] == {NUMBER: "regression", KINDS: "classification"}
    code, _, errors = cli("resume=run", *options, "trainer.max_epochs=2")  # the same keys, which cannot change
    assert code == 0, errors


def test_columns_of_any_name_in_a_preset(table, cli, tmp_path):
    preset = tmp_path / "mine" / "experiment" / "mine.yaml"
    preset.parent.mkdir(parents=True)
    preset.write_text(
        f'# @package _global_\ndataset:\n  targets: ["{WORDS}"]\n  labels:\n    "{WORDS}": {{no (safe): 0, "yes: \'x\'": 1}}\n'
    )
    code, _, errors = cli(*table, "--config-dir=mine", "experiment=mine", "hydra.run.dir=run")
    assert code == 0, errors
    assert read_json(tmp_path / "run" / "result.json")["names"] == [WORDS]


@pytest.mark.parametrize(
    ("lines", "advised"),
    [
        ([f"{'C' * n}O,{n}" for n in range(1, 40)], "dataset.header=false"),
        (["smiles,y", *(f"{'C' * n}O,{'<' * (n == 5)}{n}" for n in range(1, 40))], "dataset.bounded=true"),
        (["smiles,y", "C1CC,3", *(f"{'C' * n}O,{n}" for n in range(1, 40))], "dataset.on_error=skip"),
    ],
)
def test_a_key_that_a_message_names_mends_the_mistake(lines, advised, cli, tmp_path):
    (tmp_path / "x.csv").write_text("\n".join(lines) + "\n")
    command = [*FAST, "dataset=csv", "dataset.path=x.csv"]
    code, _, errors = cli(*command, *([] if advised == "dataset.header=false" else ["dataset.targets=[y]"]))
    assert code == 2
    named = re.findall(r"dataset\.\w+=\w+", errors.split("Error: ")[1])
    assert advised in named
    code, _, errors = cli(*command, advised, *([] if advised == "dataset.header=false" else ["dataset.targets=[y]"]))
    assert code == 0, errors
