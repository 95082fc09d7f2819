"""The platform in numbers, for Prometheus; computed from the store when asked, so they survive a restart.

Labels are bounded: states, outcomes, device types; never a job's id.
"""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from springtide.control.scheduling.loop.health import Health
from springtide.control.scheduling.machines.inventory import Inventory
from springtide.control.scheduling.reconciler import FAILURES
from springtide.control.storage.records import JobOutcome, JobRecord
from springtide.control.storage.store import Store
from springtide.core.job_states import JobState


class Numbers(Collector):
    """Everything about one moment."""

    def __init__(self, store: Store, inventory: Inventory, now_s: float, health: Health | None = None) -> None:
        self.store = store
        self.inventory = inventory
        self.now_s = now_s
        self.health = health

    def collect(self) -> list[Metric]:
        """Every metric with its value now."""
        active = self.store.active_jobs()
        ran = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
        ended = [outcome for outcome in self.store.list_outcomes() if outcome.state in ran]
        return [
            self.jobs(),
            *self.promises(active, ended),
            *self.running(active, ended),
            self.offers(),
            self.policy_failures(),
            *self.standstills(),
            *self.devices(active),
        ]

    def jobs(self) -> Metric:
        """Jobs by state."""
        family = GaugeMetricFamily("springtide_jobs", "Jobs by state.", labels=["state"])
        counts = self.store.count_jobs()
        for state in JobState:
            family.add_metric([str(state)], counts.get(str(state), 0))
        return family

    def promises(self, active: list[JobRecord], ended: list[JobOutcome]) -> list[Metric]:
        """Promises kept and missed, the least slack of those that are open, and how good predictions were."""
        promised = [record for record in ended if record.promised]
        met = CounterMetricFamily("springtide_deadline_met", "Promises kept.")
        met.add_metric([], sum(record.state is JobState.SUCCEEDED and not record.missed for record in promised))
        missed = CounterMetricFamily("springtide_deadline_missed", "Promises missed, by cause.", labels=["cause"])
        causes: dict[str, int] = {"faults": 0, "slower_than_measured": 0, "outside_load": 0}
        for cause in (*(outcome.missed for outcome in promised), *(record.missed for record in active)):
            if cause:
                causes[cause] = causes.get(cause, 0) + 1
        for cause, count in sorted(causes.items()):
            missed.add_metric([cause], count)
        slack = GaugeMetricFamily("springtide_deadline_slack_seconds", "Least slack of the open promises.")
        open_slack = [
            record.deadline_s - record.predicted_s
            for record in active
            if record.promised and record.deadline_s is not None and record.predicted_s is not None
        ]
        if open_slack:
            slack.add_metric([], min(open_slack))
        risk = GaugeMetricFamily("springtide_jobs_at_risk", "Open promises in danger.")
        risk.add_metric([], sum(record.condition("at_risk") is not None for record in active))
        return [met, missed, slack, risk, self.errors(promised)]

    def errors(self, promised: list[JobOutcome]) -> Metric:
        """How far the finish was from what was expected when the promise was made, as a share of the span."""
        family = SummaryMetricFamily("springtide_prediction_error_ratio", "(finish - expected) / (expected - answer).")
        ratios = [
            (record.finished_s - record.expected_s) / (record.expected_s - record.answered_s)
            for record in promised
            if record.finished_s is not None
            and record.expected_s is not None
            and record.answered_s is not None
            and record.expected_s > record.answered_s
            and record.state is JobState.SUCCEEDED
        ]
        family.add_metric([], count_value=len(ratios), sum_value=sum(map(abs, ratios)))
        return family

    def running(self, active: list[JobRecord], ended: list[JobOutcome]) -> list[Metric]:
        """What change and faults have cost."""
        records: list[JobRecord | JobOutcome] = [*active, *ended]
        pause = SummaryMetricFamily("springtide_rescale_duration_seconds", "Pauses of rescales.")
        pause.add_metric(
            [], count_value=sum(one.rescales for one in records), sum_value=sum(one.pause_s for one in records)
        )
        faults = CounterMetricFamily("springtide_faults", "Faults that jobs recovered from, or not.")
        faults.add_metric([], sum(one.faults for one in records))
        lost = CounterMetricFamily("springtide_lost_work_steps", "Steps done twice because of faults.")
        lost.add_metric([], sum(one.lost_steps for one in records))
        return [pause, faults, lost]

    def offers(self) -> Metric:
        """Offers by outcome."""
        family = CounterMetricFamily("springtide_offers", "Offers by outcome.", labels=["outcome"])
        counts = {state: 0 for state in ("open", "accepted", "expired", "withdrawn")}
        for offer in self.store.offers():
            counts[offer.state] = counts.get(offer.state, 0) + 1
        for state, count in counts.items():
            family.add_metric([state], count)
        return family

    def policy_failures(self) -> Metric:
        """Decisions that the policy could not make."""
        family = CounterMetricFamily("springtide_policy_failures", "Decisions that the policy could not make.")
        family.add_metric([], int(self.store.fact(FAILURES) or 0))
        return family

    def standstills(self) -> list[Metric]:
        """What was put aside, and how long what stands still does so."""
        aside = GaugeMetricFamily("springtide_quarantined", "What could not be worked in or stored, and is kept.")
        aside.add_metric([], self.store.count_quarantine())
        if self.health is None:
            return [aside]
        age = GaugeMetricFamily("springtide_step_age_seconds", "Since the last good step of the reconciler.")
        age.add_metric([], self.health.step_age_s)
        lost = GaugeMetricFamily("springtide_executor_lost_seconds", "Since the executor stopped to answer, or 0.")
        lost.add_metric([], self.health.executor_age_s)
        outage = GaugeMetricFamily("springtide_executor_outage_seconds", "Since the executor lacks something, or 0.")
        outage.add_metric([], self.health.outage_age_s)
        failures = CounterMetricFamily("springtide_step_failures", "Steps that failed whole, of this server.")
        failures.add_metric([], self.health.failures)
        return [aside, age, lost, outage, failures]

    def devices(self, active: list[JobRecord]) -> list[Metric]:
        """Devices there are, and devices held."""
        total = GaugeMetricFamily("springtide_devices", "Devices.", labels=["type"])
        held = GaugeMetricFamily("springtide_devices_held", "Devices that jobs hold.", labels=["type"])
        ratio = GaugeMetricFamily("springtide_device_utilisation_ratio", "Held devices by devices.", labels=["type"])
        taken = self.inventory.count_types(name for record in active for name in record.devices)
        slow = GaugeMetricFamily(
            "springtide_outside_slowdown_ratio", "How many times longer work takes for others there.", labels=["node"]
        )
        for node, names in zip(self.inventory.nodes, self.inventory.names, strict=True):
            slow.add_metric([node], self.inventory.find_slowest(names))
        for device_type, count in self.inventory.cluster.totals.items():
            total.add_metric([device_type], count)
            held.add_metric([device_type], taken.get(device_type, 0))
            ratio.add_metric([device_type], taken.get(device_type, 0) / count)
        return [total, held, ratio, slow]


def write_metrics(store: Store, inventory: Inventory, now_s: float, health: Health | None = None) -> str:
    """The metrics page."""
    registry = CollectorRegistry()
    registry.register(Numbers(store, inventory, now_s, health))
    return generate_latest(registry).decode()
