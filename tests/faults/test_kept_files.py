"""What foils keeps for itself, damaged: refused by name, or passed over where another will do; never a traceback."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest
import torch
from fuzz_mutations import spoiled
from hypothesis import given, settings
from hypothesis import strategies as st
from kept_formats import KEPT

from foils.runtime.errors import FormatError, InputError
from foils.training.fit import LOSS_STATE, LossState

VALID = {"study-cell": 3, "study-scores": 6, "study-result": 6, "checkpoint-list": 1}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


@pytest.mark.parametrize("name", KEPT)
def test_valid_files_are_read_whole(name, place):
    for example in KEPT[name].examples():
        found = KEPT[name].check(example, place / name)
        assert (found.records, found.complaints) == (VALID[name], 0)


@pytest.mark.parametrize("name", KEPT)
@settings(max_examples=60, derandomize=True)
@given(seeds=st.lists(st.integers(0, 2**32), min_size=1, max_size=3))
def test_spoiled_files_are_read_whole_or_refused_by_name(name, place, seeds):
    (data,) = KEPT[name].examples()
    for seed in seeds:
        data = spoiled(KEPT[name], data, Random(seed), most=1)
    KEPT[name].check(data, place / name)


@pytest.mark.parametrize("name", KEPT)
@settings(max_examples=20, derandomize=True)
@given(data=st.binary(max_size=300) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_at_all(name, place, data):
    KEPT[name].check(data, place / name)


TOO_MUCH = [b"", b"\x00", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5_000, b"[]", b"null", b'"x"', b"{}"]


@pytest.mark.parametrize("data", TOO_MUCH, ids=range(len(TOO_MUCH)))
@pytest.mark.parametrize("name", KEPT)
def test_what_is_nothing_like_it(name, data, place):
    found = KEPT[name].check(data, place / name)
    assert found.records == 0
    assert bool(found.complaints) == (name != "checkpoint-list")  # another checkpoint will do


class Learning(torch.nn.Module):
    """A loss that learns numbers of its own."""

    def __init__(self, size: int, name: str = "mix") -> None:
        super().__init__()
        self.register_parameter(name, torch.nn.Parameter(torch.arange(float(size))))


def test_what_a_loss_learned_comes_back_or_is_refused_by_name(tmp_path):
    args, state = SimpleNamespace(output_dir=tmp_path), SimpleNamespace(global_step=7, is_world_process_zero=True)
    path = tmp_path / "checkpoint-7" / LOSS_STATE
    path.parent.mkdir()

    def begin(loss):
        LossState(loss).on_train_begin(args, state, None)

    with pytest.raises(InputError, match=f"{LOSS_STATE}, which is not there"):
        begin(Learning(3))
    LossState(Learning(3)).on_save(args, state, None)
    again = Learning(3)
    torch.nn.init.zeros_(again.mix)
    begin(again)
    assert again.mix.tolist() == [0, 1, 2]
    for other in (Learning(4), Learning(3, "scale")):
        with pytest.raises(FormatError, match=f"{LOSS_STATE}: .*of another loss"):
            begin(other)
    whole = path.read_bytes()
    for data in (b"", whole[:-1], whole[:20], b"\xff" * 8 + whole, whole.replace(b"F32", b"F99"), b"[" * 9_000):
        path.write_bytes(data)
        with pytest.raises(FormatError, match=f"{LOSS_STATE}: damaged state of the loss"):
            begin(Learning(3))
