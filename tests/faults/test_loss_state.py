"""What a loss learned comes back with its checkpoint, or is refused by name."""

from contextlib import ExitStack
from types import SimpleNamespace

import pytest
import torch

from foils.runtime.errors import FormatError, InputError
from foils.training.fit import LOSS_STATE, Steps


class Learning(torch.nn.Module):
    """A loss that learns numbers of its own."""

    def __init__(self, size: int, name: str = "mix") -> None:
        super().__init__()
        self.register_parameter(name, torch.nn.Parameter(torch.arange(float(size))))


def test_what_a_loss_learned_comes_back_or_is_refused_by_name(tmp_path):
    args = SimpleNamespace(output_dir=tmp_path)
    state = SimpleNamespace(global_step=7, max_steps=9, is_world_process_zero=True)
    path = tmp_path / "checkpoint-7" / LOSS_STATE
    path.parent.mkdir()

    def begin(loss):
        Steps(loss, ExitStack()).on_train_begin(args, state, None)

    with pytest.raises(InputError, match=f"{LOSS_STATE}, which is not there"):
        begin(Learning(3))
    Steps(Learning(3), ExitStack()).on_save(args, state, None)
    again = Learning(3)
    torch.nn.init.zeros_(again.mix)
    begin(again)
    assert again.mix.tolist() == [0, 1, 2]
    for other in (Learning(4), Learning(3, "scale")):
        with pytest.raises(FormatError, match=f"{LOSS_STATE}: .*of another training"):
            begin(other)
    whole = path.read_bytes()
    for data in (b"", whole[:-1], whole[:20], b"\xff" * 8 + whole, whole.replace(b"F32", b"F99"), b"[" * 9_000):
        path.write_bytes(data)
        with pytest.raises(FormatError, match=f"{LOSS_STATE}: damaged state of the loss"):
            begin(Learning(3))
