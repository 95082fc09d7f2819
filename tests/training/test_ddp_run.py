"""The reference's model is used as the plain one is, whatever a script does with it."""

import copy
import io

import pytest
import torch
from torch import nn

from springtide.training.ddp_run import StockModel


class Decoder(nn.Module):
    """A model with a method of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def decode(self) -> str:
        return "decoded"


@pytest.fixture
def model() -> StockModel:
    stock = StockModel.__new__(StockModel)  # without a group, which takes no part in this
    nn.Module.__init__(stock)
    stock.module = Decoder()
    return stock


def test_its_own_methods_and_names_are_there(model: StockModel) -> None:
    assert model.decode() == "decoded" and isinstance(model, Decoder) and isinstance(model, StockModel)
    assert [name for name, _ in model.named_parameters()] == ["layer.weight", "layer.bias"]
    assert list(model.state_dict()) == ["layer.weight", "layer.bias"]


def test_plain_weights_go_in_and_come_out(model: StockModel) -> None:
    plain = Decoder()
    model.load_state_dict(plain.state_dict())
    assert torch.equal(model.module.layer.weight, plain.layer.weight)
    plain.load_state_dict(model.state_dict())


def test_it_is_saved_and_copied_as_the_plain_model(model: StockModel) -> None:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    with torch.serialization.safe_globals([Decoder, nn.Linear]):
        loaded = torch.load(file)
    for other in (copy.deepcopy(model), loaded):
        assert type(other) is Decoder
        assert torch.equal(other.layer.weight, model.module.layer.weight)


def test_a_compiled_model_without_a_length_is_true(model: StockModel) -> None:
    model.module = torch.compile(Decoder(), backend="eager")
    with pytest.raises(TypeError):
        bool(model.module)  # which Dynamo asks of the DDP around it
    assert model
