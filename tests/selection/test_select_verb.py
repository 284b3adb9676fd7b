import json

import numpy as np
import pyarrow as pa
import pytest

from foils.cli.app import run
from foils.data import Negatives


@pytest.fixture
def rated(tmp_path):
    gaps = np.linspace(-100, 800, 40)
    columns = {
        "query_id": ["q"] * 40,
        "doc_id": [f"d{i}" for i in range(40)],
        "source": ["s"] * 40,
        "rank": range(40),
        "score": [0.0] * 40,
    }
    table = pa.table({**columns, "elo": 1500 - gaps, "elo_se": np.full(40, 30.0), "gap": gaps})
    Negatives(table, {"stage": "rate"}).write(tmp_path / "rated.parquet")
    return tmp_path / "rated.parquet"


def select(rated, *more):
    return run(["select", str(rated), "-o", str(rated.parent / "train.parquet"), *more])


def test_it_writes_table_and_json(rated, capsys):
    assert select(rated, "--json", str(rated.parent / "s.json")) == 0
    found = Negatives.read(rated.parent / "train.parquet")
    gaps = found.table["gap"].to_numpy()
    np.testing.assert_array_equal(found.keep, gaps >= 100)
    assert found.provenance["before"] == {"stage": "rate"}
    result = json.loads((rated.parent / "s.json").read_text())
    assert result["kept"] == (gaps >= 100).sum() == sum(tier["kept"] for tier in result["tiers"].values())
    assert result["thresholds"]["goldilocks"] == 200
    assert "goldilocks" in capsys.readouterr().out


def test_settings_and_seed(rated):
    kept = []
    for more in (("--seed", "1"), ("--seed", "1"), ("--seed", "2"), ("--set", "per_query=20")):
        assert select(rated, "--by", "simans", *more) == 0
        kept.append(Negatives.read(rated.parent / "train.parquet").keep.tolist())
    assert kept[0] == kept[1] != kept[2]
    assert sum(kept[3]) == 20 > sum(kept[0])
    assert select(rated, "--set", "bounds=[0, 200, 400, 600]") == 0
    assert sum(Negatives.read(rated.parent / "train.parquet").keep) == (np.linspace(-100, 800, 40) >= 0).sum()


def test_where_no_row_is_kept_it_says_so_and_what_to_loosen(rated, capsys):
    assert select(rated, "--by", "relative", "--set", "margin=0.9") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "No row is kept: there is nothing to train on. Give the rule relative other settings (margin), or" in said
    assert "too close to the positive's rating: 40" in said
    assert select(rated, "--by", "relative") == 0
    assert "No row is kept" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--by", "gap"), "Choose from"),
        (("--by", "relative", "--set", "margn=1"), "Did you mean 'margin'"),
        (("--set", "bounds"), "NAME=VALUE"),
        (("--by", "relative", "--set", "margin=much"), "not a number"),
        (("--by", "denoise"), "validate all"),
    ],
)
def test_bad_input_is_said(rated, capsys, more, said):
    assert select(rated, *more) == 2
    assert said in capsys.readouterr().err
