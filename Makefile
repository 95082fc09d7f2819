# Two commands on a fresh machine with Python 3.11: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo check test test-whole test-failed axe screenshots images vendor test-probes test-slow test-wheel test-fsdp test-trackers test-trackers-page test-postgres test-storage test-run-as test-limits install-frameworks test-frameworks test-frameworks-short test-adversary test-night test-cluster test-gpu test-skypilot docs wheel bench figures test-docs test-mcp session reference clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: setup
	$(BIN)/springtide demo

check: setup
	$(BIN)/ruff format --check src tests benchmarks experiments website
	$(BIN)/ruff check src tests benchmarks experiments website
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Two workers, for two cores: with more, made faults run into their limits. Files that take long are begun first (tests/conftest.py).
WORKERS ?= 2
test: check
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=20 --durations-min=10

# The platform from end to end: nodes lost, faults at random, every page in both themes. CI runs it after `make test`.
test-whole: setup
	$(BIN)/python -m pytest -m 'whole and not adversary' -n $(WORKERS) --dist loadfile --durations=0 --durations-min=10

# What failed the last time, one after the other.
test-failed: setup
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none -v -m 'not slow and not gpu and not adversary'

# For the tests of the pages in a browser; without them those tests say so and the rest runs.
AXE := build/axe
AXE_SHA256 := 20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878
axe: $(AXE)/package/axe.min.js
$(AXE)/package/axe.min.js:
	mkdir -p $(AXE)
	cd $(AXE) && npm pack --silent axe-core@4.14.0 && tar xzf axe-core-4.14.0.tgz package/axe.min.js
	echo "$(AXE_SHA256)  $@" | sha256sum --check --quiet

# Every page in both themes, to be looked at.
screenshots: setup
	$(BIN)/python -m tests.dashboard.screenshots build/screenshots

# The pictures that README and the guides show, taken anew.
images: setup
	$(BIN)/python -m tests.dashboard.screenshots --images docs/images

# The scripts and the font of the pages, taken anew from their npm packages.
vendor: setup
	$(BIN)/python -m springtide.dashboard.vendoring --refresh

# One-feature scripts, each against stock DDP by hand: nightly.
test-probes: setup
	$(BIN)/python -m pytest -m slow tests/training/probes

test-slow: setup
	$(BIN)/python -m pytest -m slow

# The guide followed literally from a built wheel, in an environment and a folder with nothing else of ours.
test-wheel: setup
	$(BIN)/python -m pytest -m slow tests/test_wheel.py

# Sharded models on every mapping, and their example, against stock DDP.
test-fsdp: setup
	$(BIN)/python -m pytest -m 'slow or not slow' tests/training/sharding
	$(BIN)/springtide verify src/springtide/examples/gpt/train_sharded.py --steps 8

# Five kills and one gapless curve in each tracker, with the trackers' own packages.
test-trackers: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[tensorboard,mlflow,wandb]'
	$(BIN)/python -m pytest -m slow tests/training/tracking
	$(BIN)/python -m tests.follow_docs docs/guides/trackers.md

# What CI runs of it: the guide word for word, with TensorBoard alone.
test-trackers-page: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[tensorboard]'
	$(BIN)/python -m tests.follow_docs docs/guides/trackers.md

# The store on a private PostgreSQL, and two servers on it; needs its server programs. Without a driver or a server this
# fails, it does not skip.
POSTGRES := build/postgres
test-postgres: setup
	$(BIN)/python -m pip install --quiet --target $(POSTGRES) 'psycopg[binary]>=3.1'
	PYTHONPATH=$(abspath $(POSTGRES)) SPRINGTIDE_POSTGRES=required $(BIN)/python -m pytest \
		tests/control/storage/test_postgres.py tests/control/storage/test_leadership.py tests/control/test_standby.py

# Checkpoints in object storage, and jobs on hosts that share nothing else, against a real S3-compatible server on loopback;
# s3fs and moto in folders of their own, because they pin other versions of what is installed here.
# CI leaves the slow ones out, here and in test-cluster: MARK='not slow'.
MARK ?= slow or not slow
STORAGE := build/storage
MOTO := build/moto
WITH_STORAGE = PYTHONPATH=$(abspath $(STORAGE)) SPRINGTIDE_MOTO=$(abspath $(MOTO))
$(STORAGE)/.installed: Makefile | setup
	$(BIN)/python -m pip install --quiet --upgrade --target $(STORAGE) 's3fs==2026.6.0'
	$(BIN)/python -m pip install --quiet --upgrade --target $(MOTO) 'moto[server]==5.2.5'
	@touch $@

test-storage: $(STORAGE)/.installed
	$(WITH_STORAGE) $(BIN)/python -m pytest -m '$(MARK)' tests/objects

# Jobs under two other system users, attacked. As root; otherwise it fails. Makes an interpreter that they can read.
test-run-as: setup
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	SPRINGTIDE_RUN_AS=required $$($(BIN)/python -m tests.control.readable_python "$$folder") \
		-m pytest -m 'slow or not slow' tests/control/test_run_as.py

# Jobs held to their memory and number of processes, on a kernel whose control groups are ours to use: Debian's, in QEMU.
# Needs qemu-system-x86, busybox-static, kmod and cpio. Emulated, so it takes minutes; QEMU_ACCELERATOR=kvm where that works.
KERNEL := build/kernel
$(KERNEL)/boot:
	mkdir -p $(KERNEL)
	cd $(KERNEL) && apt-get download -qq "$$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: //p' | head -n 1)"
	dpkg -x $(KERNEL)/*.deb $(KERNEL) && rm $(KERNEL)/*.deb

test-limits: setup $(KERNEL)/boot
	$(BIN)/python -m tests.own_kernel $(KERNEL) $(BIN)/python -m pytest -p no:cacheprovider --timeout 1800 tests/executors/local/test_limits.py \
		tests/executors/local/processes/test_cgroups.py tests/executors/local/test_hostile_workers.py

# Adapters against their frameworks' own runs on four ranks; with the frameworks installed, what lacks one fails.
WITH_FRAMEWORKS = HF_HUB_OFFLINE=1 SPRINGTIDE_FRAMEWORKS=required
install-frameworks: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[hf,lightning,tensorboard]'

test-frameworks: install-frameworks
	$(WITH_FRAMEWORKS) $(BIN)/python -m pytest -m 'slow or not slow' tests/integrations

# What CI runs of it: refusals, the insides that adapters stand on, and one rescaled and killed training per framework.
test-frameworks-short: install-frameworks
	$(WITH_FRAMEWORKS) $(BIN)/python -m pytest -m 'short or not slow' tests/integrations
	$(WITH_FRAMEWORKS) $(BIN)/python -m tests.follow_docs docs/guides/accelerate.md docs/guides/lightning.md docs/guides/hugging-face.md

# Fuzzers, faults, actions and every attack of docs/concepts/security.md, by the tests that the page names; other nonsense
# with SPRINGTIDE_SEED=N. Fails if it is not done within 15 minutes, or has sent fewer than 50,000 cases over HTTP.
test-adversary: setup
	SPRINGTIDE_LEAST_CASES=50000 $(BIN)/python -m pytest -m 'adversary or not (slow or gpu)' -n 2 --dist loadfile \
		--session-timeout 900 tests/adversary $$($(BIN)/python -m tests.adversary.attacks)

# All one-feature scripts; the attacks with the seed of the night, which every line of their report names; and a thousand
# faults under it.
NIGHT := $(shell date +%Y%m%d)
test-night: setup
	$(MAKE) test-probes
	SPRINGTIDE_SEED=$(NIGHT) $(MAKE) test-adversary
	$(BIN)/python -m benchmarks.chaos --faults 1000 --seed $(NIGHT)

# Several hosts: agents over the loopback, a real Ray cluster of raylets on this machine with gloo between them, and an
# S3-compatible store.
test-cluster: $(STORAGE)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,ray]'
	$(BIN)/python -m pip install --quiet --target $(POSTGRES) 'psycopg[binary]>=3.1'
	PYTHONPATH=$(abspath $(STORAGE)):$(abspath $(POSTGRES)) SPRINGTIDE_MOTO=$(abspath $(MOTO)) SPRINGTIDE_RAY=required \
		$(BIN)/python -m pytest -m '$(MARK)' tests/executors/hosts tests/cluster

test-gpu: setup
	$(BIN)/python -m pytest -m gpu

# Our exported tasks, read by SkyPilot's own parser in an environment of its own; nothing is launched.
SKY := build/skypilot
PLAN = $(BIN)/springtide plan --from-index --cloud aws --points $(SKY)/points.csv --steps 90000 --global-batch 256 --deadline 24h
test-skypilot: setup
	$(PYTHON) -m venv $(SKY)/venv
	$(SKY)/venv/bin/python -m pip install --quiet skypilot==0.10.0
	$(BIN)/springtide throughput import src/springtide/throughput/data/a100 --format elasticflow --out $(SKY)/points.csv
	$(PLAN) --spot --export skypilot --export-file $(SKY)/plan.yaml
	$(PLAN) --export probe --export-file $(SKY)/probe.yaml
	HOME=$(abspath $(SKY)/home) $(SKY)/venv/bin/python tests/cloud/check_skypilot.py $(SKY)/plan.yaml $(SKY)/probe.yaml \
		deploy/skypilot/springtide.yaml

# The docs as a site, with search, the HTTP reference and every link checked: build/docs/site/index.html
docs: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	$(BIN)/python -m website build/docs
	cd build/docs && $(abspath $(BIN))/zensical build --strict --clean --config-file mkdocs.yml

# What `pip install 'dist/springtide-....whl[train]'` takes, on any machine.
wheel: setup
	rm -rf dist
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .
	@echo "install it with: pip install '$$(ls dist/*.whl)[train]'"

bench: setup
	$(BIN)/python -m benchmarks

# Every figure of the three papers from our own runs; with the public data: make figures DATA=DIR. Goes on where it ended.
DATA ?= $(SPRINGTIDE_DATA)
FIGURES := build/figures
figures: setup
	$(BIN)/springtide figures $(if $(DATA),--data $(DATA)) --out $(FIGURES)
	mkdir -p docs/figures && cp $(FIGURES)/*.png $(FIGURES)/*.csv $(FIGURES)/summary.md docs/figures/
	rm -f docs/figures/*-rows.csv # they hold rows of the public measurements

# README and every guide, word for word, each in a clean folder and a clean home; some pages only with PAGES='A B'.
PAGES ?=
test-docs: setup
	$(BIN)/python -m tests.follow_docs $(PAGES)

# The tools for agents, driven by the protocol's own client.
test-mcp: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[mcp]'
	$(BIN)/python -m pytest tests/cli/test_mcp_server.py

# The first ten minutes, typed into a real terminal: docs/first-ten-minutes.md
session: setup
	$(BIN)/python -m tests.record_session > docs/first-ten-minutes.md

# The reference of the command line, made from the commands.
reference: setup
	$(BIN)/python -m springtide.cli.reference > docs/cli.md

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
