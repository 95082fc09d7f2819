"""A comparison of policies on a workload, as the pages and the API ask for it."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from springtide.policies import POLICIES

MOST_POLICIES = 8
MOST_TRACE_BYTES = 2 << 20


class SimulationBody(BaseModel):
    """Jobs, drawn or from a trace, and who is to schedule them on what."""

    model_config = ConfigDict(extra="forbid")
    synthetic: Annotated[str, Field(max_length=200, description="A workload to draw: jobs=200,gap=600,seed=0.")] = ""
    trace: Annotated[str, Field(max_length=MOST_TRACE_BYTES, description="Or a trace, as the text of a CSV file.")] = ""
    cluster: Annotated[str, Field(max_length=200, description="NODESxGPUS:TYPE, several joined by commas.")] = (
        "4x8:a100"
    )
    policies: Annotated[
        list[Annotated[str, Field(max_length=64)]],
        Field(min_length=1, max_length=MOST_POLICIES, description="Names of policies, as `springtide simulate` knows."),
    ] = ["elasticflow", "springtide"]
    skip_bad_rows: Annotated[bool, Field(description="Leave out rows that cannot be read.")] = False

    @model_validator(mode="after")
    def check_source(self) -> "SimulationBody":
        """One source, and policies of the package: a name with a module in it would run code of the caller's choice."""
        if bool(self.synthetic) == bool(self.trace):
            raise ValueError("give either synthetic or trace")
        unknown = [name for name in self.policies if name not in POLICIES]
        if unknown:
            raise ValueError(f"policies {', '.join(unknown)} are unknown; there are {', '.join(POLICIES)}")
        return self
