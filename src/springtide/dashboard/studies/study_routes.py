"""The API of studies: what `springtide simulate` and `springtide plan --cloud` answer, computed by the server."""

from base64 import b64decode

from fastapi import FastAPI, Request
from fastapi.responses import Response

from springtide.core.shared_types import Document
from springtide.dashboard.studies.rental_study import RentalBody
from springtide.dashboard.studies.simulation_study import SimulationBody
from springtide.dashboard.studies.study_runner import StudyRunner


def add_study_routes(app: FastAPI) -> None:
    """Simulate, and search machines."""
    runner = StudyRunner()

    @app.post("/api/v1/simulations", tags=["studies"])
    async def simulate(request: Request, body: SimulationBody) -> Document:
        """Replay jobs under several policies: one report per policy, and what it held over time.

        Computed in a process of its own, one after the other; the last results are kept.
        """
        return await runner.run(request.state.user, "simulation", body.model_dump(mode="json"))

    @app.post("/api/v1/simulations/picture", tags=["studies"], response_class=Response)
    async def draw_simulation(request: Request, body: SimulationBody) -> Response:
        """The same as a picture (PNG): devices held and deadlines met over time, a line per policy."""
        drawn = await runner.run(request.state.user, "picture", body.model_dump(mode="json"))
        return Response(b64decode(drawn["png"]), media_type="image/png")

    @app.post("/api/v1/rentals", tags=["studies"])
    async def search_machines(request: Request, body: RentalBody) -> Document:
        """Which machines to rent for a job: the best plans, the front of time and cost, and a SkyPilot task for each.

        Nothing is rented, and nobody is asked online.
        """
        return await runner.run(request.state.user, "rental", body.model_dump(mode="json"))
