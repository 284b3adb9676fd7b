import json

import numpy as np
import pyarrow as pa
import pytest

from foils.cli.app import run
from foils.data import Negatives
from foils.data.negatives import negatives_table
from foils.runtime.errors import InputError, UnknownNameError
from foils.selection import RULES
from foils.selection.doors import select


def rated(gaps, *, per_query=4, **more):
    n, gaps = len(gaps), np.asarray(gaps, float)
    ids = pa.array([f"q{i // per_query}" for i in range(n)]), pa.array([f"d{i}" for i in range(n)])
    ratings = {"elo": 1500 - gaps, "elo_se": np.full(n, 50.0), "gap": gaps, **more}
    return Negatives(negatives_table(*ids, "s", np.arange(n), np.zeros(n)), {"stage": "rate"}).with_columns(
        {name: np.asarray(values, float) for name, values in ratings.items()}
    )


def test_the_base_table_adds_its_columns_and_drops_no_row():
    given = rated([50.0, 150.0, 300.0, np.nan])
    found = select(given)
    table = found.table
    assert table.column_names == [*given.table.column_names, "keep", "reason", "weight", "tier"]
    assert table["keep"].to_pylist() == [False, True, True, False]
    assert table["reason"].to_pylist() == ["danger zone", None, None, "unrated"]
    assert table["weight"].to_pylist() == [0, 0.5, 1, 0]
    assert table["tier"].to_pylist() == ["danger", "soft", "goldilocks", "unrated"]
    assert found.rejected() == {"danger zone": 1, "unrated": 1}
    assert "keep" not in given.table.column_names


def test_rows_rejected_before_keep_their_reason_and_are_not_seen():
    gaps = [*np.linspace(0, 100, 20), 5000.0, 6000.0]
    given = rated(gaps).reject(np.arange(22) >= 20, "look-alike")
    found = select(given, by="percentile")
    assert found.selection.thresholds["medium"] == pytest.approx(75)
    assert found.table["reason"].to_pylist()[20:] == ["look-alike"] * 2
    assert found.table["tier"].to_pylist()[20:] == [None, None]
    assert found.table["weight"].to_pylist()[20:] == [0, 0]


def test_the_judges_word_is_used_where_the_table_has_it():
    gaps = [90.0, 120.0]
    assert select(rated(gaps, preference=[0.9, 0.1])).keep.tolist() == [True, False]
    assert select(rated(gaps)).keep.tolist() == [False, True]
    assert select(rated(gaps, preference=[0.9, 0.1]), by="denoise").keep.tolist() == [True, False]


def test_settings_and_seed_reach_the_rule():
    given = rated(np.linspace(0, 800, 40), per_query=20)
    assert select(given, by="curriculum", settings={"epoch": 7}).keep.sum() > select(given, by="curriculum").keep.sum()
    draws = [select(given, by="simans", seed=seed).keep.tolist() for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.parametrize("name", list(RULES))
def test_every_method_runs_on_a_table(name):
    gaps = np.random.default_rng(0).normal(300, 200, 60)
    found = select(rated(gaps, preference=np.full(60, 0.8)), by=name)
    assert 0 < found.keep.sum() <= 60
    assert (found.table["weight"].to_numpy()[found.keep] > 0).all()


def test_unknown_names_and_unrated_tables_are_refused():
    with pytest.raises(UnknownNameError, match=r"mixture.*percentile"):
        select(rated([1.0]), by="percentiles")
    with pytest.raises(UnknownNameError, match="Did you mean 'margin'"):
        select(rated([1.0]), by="relative", settings={"margn": 0.1})
    bare = Negatives(rated([1.0]).table.drop_columns(["elo", "gap"]))
    with pytest.raises(InputError, match="no elo, gap; rate it first"):
        select(bare)
    with pytest.raises(InputError, match="weight"):
        select(select(rated([300.0])))


@pytest.fixture
def program(tmp_path):
    """foils select of forty gaps from −100 to 800, of one query."""
    rated(np.linspace(-100, 800, 40), per_query=40).write(tmp_path / "rated.parquet")
    return lambda *more: run(["select", str(tmp_path / "rated.parquet"), "-o", str(tmp_path / "out.parquet"), *more])


def test_the_program_writes_table_and_json(program, tmp_path, capsys):
    assert program("--set", "bounds=[50, 200, 400, 600]", "--json", str(tmp_path / "s.json")) == 0
    found = Negatives.read(tmp_path / "out.parquet")
    gaps = found.table["gap"].to_numpy()
    np.testing.assert_array_equal(found.keep, gaps >= 50)
    assert found.provenance["before"] == {"stage": "rate"}
    result = json.loads((tmp_path / "s.json").read_text())
    assert result["kept"] == (gaps >= 50).sum() == sum(tier["kept"] for tier in result["tiers"].values())
    assert result["thresholds"]["goldilocks"] == 200
    assert "goldilocks" in capsys.readouterr().out


def test_where_no_row_is_kept_it_says_so_and_what_to_loosen(program, capsys):
    assert program("--by", "relative", "--set", "margin=0.9") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "No row is kept: there is nothing to train on. Give the rule relative other settings (margin), or" in said
    assert "too close to the positive's rating: 40" in said


BAD = {"--by gap": "Choose from", "--set bounds": "NAME=VALUE", "--by relative --set margin=much": "not a number"}


@pytest.mark.parametrize(("more", "said"), BAD.items())
def test_bad_input_is_said(program, capsys, more, said):
    assert program(*more.split()) == 2
    assert said in capsys.readouterr().err
