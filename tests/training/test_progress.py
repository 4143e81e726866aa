import json
import re
import sys

from molgcn.training.train import train


def test_people_count_epochs_from_1(small_config, tmp_path, monkeypatch, capsys):
    """Epochs count from 1 in lines, bars, the result's table and result.json; metrics.csv counts as Lightning does."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    result = train(small_config(dataset={"subset": 100}), tmp_path)
    result.save([])
    result.print()
    printed = capsys.readouterr().out
    assert re.findall(r"epoch (\d+)  val/loss", printed) == ["1", "2"]
    assert set(re.findall(r"Epoch (\d/\d)", printed)) == {"1/2", "2/2"}
    losses = [float(loss) for loss in re.findall(r"val/loss ([\d.]+)", printed)]
    best = 1 + losses.index(min(losses))
    assert f"best epoch {best} of 2" in printed
    assert json.loads((tmp_path / "result.json").read_text())["best_epoch"] == result.best_epoch == best
    assert {row.split(",")[0] for row in (tmp_path / "metrics.csv").read_text().splitlines()[1:]} == {"0", "1"}
