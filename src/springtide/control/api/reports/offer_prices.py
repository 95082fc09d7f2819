"""What taking an offer would cost at least: its steps on the cheapest devices that the job may use, where these have a
price. At the speeds that promises count on, as plans are priced. Pure."""

from collections.abc import Iterable, Mapping

from springtide.control.scheduling.live_jobs import look_up, make_job
from springtide.control.scheduling.machines.inventory import Inventory
from springtide.control.scheduling.means import find_cheapest, is_known
from springtide.control.storage.records import JobRecord, OfferRecord, SpeedRecord


def price_offers(
    record: JobRecord, offers: Iterable[OfferRecord], speeds: Iterable[SpeedRecord], inventory: Inventory
) -> Mapping[str, float]:
    """Dollars by the id of an offer; empty where nothing has a price, or the speed of the code is not known."""
    facts = look_up(record, {record.speed_key: {one.device_type: one for one in speeds}}, inventory)
    if inventory.prices.is_empty or not is_known(record, facts):
        return {}
    job = make_job(record, facts, inventory)
    work = {one.id: job.work if one.kind == "deadline" else min(job.work, float(one.steps)) for one in offers}
    return {id: find_cheapest(job, steps - record.step, inventory)[0] for id, steps in work.items()}
