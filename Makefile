# Every target sets up what it needs first; once .venv is there and newer than the locks, that costs nothing.
SHELL := /bin/bash
.DEFAULT_GOAL := help

KILLS ?= 10
SERVER_KILLS ?= 0
DATABASE ?=
STATES ?= 500000
JOBS ?= $(shell nproc)
TESTERS ?= 3
PYTHON ?=
OUT ?=
ARGS ?=
PY := .venv/bin/python
VIEW = $(if $(UI),--ui)
LEDGER = $(if $(DATABASE),--database $(DATABASE)) --server-kills $(SERVER_KILLS)

# Nothing is written beside the sources: what tools remember stays below .venv.
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/pycache
export HYPOTHESIS_STORAGE_DIRECTORY := $(CURDIR)/.venv/.cache/hypothesis
export PYTHON
# A worker whose imports are compiled at each start starts two seconds later.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo demo-native demo-sensors demo-orders test test-ci test-full test-bridges test-docker test-spark test-versions test-matrix check bench bench-spark bench-peers proof-model proof-sessions proof-mutants proof-simulation proof-spark proof-faults docs sbom lock clean

help:  ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26

.venv/.ready: .ci/setup .ci/compile.py $(wildcard cues_kafka/brokers/kafka/compiled/*.[ch]) $(filter-out %/docs.lock %/matrix.lock,$(wildcard .ci/requirements/*.lock)) pyproject.toml
	@.ci/setup

# Spark's JVMs in tests load their classes from it, in half the processor time. While it is made, all tests are compiled
# once: in a new environment each tester would compile all of them, at the same time as the others. And the servers that
# the system lacks are fetched.
.venv/.cache/spark.jsa: .venv/.ready tests/spark/archive.py
	@rm -f $@
	@timeout 300 $(PY) -m pytest -qq --collect-only >/dev/null 2>&1 & \
	  timeout 300 $(PY) -m tests.servers.prefetch & \
	  $(PY) -m tests.spark.archive; made=$$?; wait; exit $$made

demo: .venv/.ready  ## all flights of 2013 through a graph on Spark and native workers that are killed; KILLS=n (10), DATABASE=postgres|sqlite|none, UI=1 shows it in a browser
	@$(PY) -m examples.flights --kills $(KILLS) $(LEDGER) $(VIEW) $(ARGS)

demo-native: .venv/.ready  ## the same on native workers alone, which is faster; KILLS=n (10), SERVER_KILLS=n of PostgreSQL (0), UI=1
	@$(PY) -m examples.flights --native --kills $(KILLS) $(LEDGER) $(VIEW) $(ARGS)

demo-sensors: .venv/.ready  ## readings from an MQTT broker through Kafka, alarms back, while workers and that broker stop; KILLS=n (10)
	@$(PY) -m examples.sensors --kills $(KILLS) $(ARGS)

demo-orders: .venv/.ready  ## orders by JMS through Kafka into PostgreSQL and back to JMS, while all three are killed; KILLS=n (10)
	@$(PY) -m examples.orders_jms --kills $(KILLS) $(ARGS)

test: .venv/.cache/spark.jsa  ## the tests, on real brokers, three side by side, in about ten minutes; ARGS="-k name -x", TESTERS=n
	@$(PY) -m pytest -n $(TESTERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-ci: .venv/.cache/spark.jsa  ## one short case of each family of the longer tests (tests/families.py), about five minutes
	@$(PY) -m pytest -m family -n $(TESTERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-full: .venv/.cache/spark.jsa  ## the longer tests that `make test` leaves out, and all examples of properties, forty minutes and more; ARGS="-k name"
	@$(PY) -m pytest -m "full or hypothesis" -n $(TESTERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-bridges: .venv/.ready  ## every bridge to another broker, with kills of both sides, under a quarter of an hour; ARGS="-k name"
	@$(PY) -m tests.servers.prefetch --bridges
	@$(PY) -m pytest -m bridge -n $(TESTERS) --dist load $(ARGS)

test-docker: .venv/.ready  ## images, compose.yaml and containers for tests, on a Docker engine of its own, as root; ARGS="-k name"
	@$(PY) -m tests.docker.alone $(PY) -m pytest -m docker tests/docker $(ARGS)

# Each of its tests starts drivers and JVMs of its own, so it stays with two testers.
test-spark: TESTERS = 2
test-spark: .venv/.cache/spark.jsa  ## every fault of processors on Spark, half an hour and more; ARGS="-k name"
	@$(PY) -m pytest -m "fault or slow" -n $(TESTERS) --dist load tests/spark tests/test_demo.py $(ARGS)

test-versions: .venv/.ready  ## the whole contract with a broker on Kafka 3.7, 3.9, 4.0 and 4.4; ARGS="-k name"
	@$(PY) -m pytest -m "full or slow" -n $(TESTERS) --dist load tests/contract $(ARGS)

test-matrix: .venv/.cache/spark.jsa  ## unit tests and contract on Python 3.11 to 3.14, Spark's on Java 17 and 21, fetching 3.14 and 21; ARGS="--python 3.13"
	@$(PY) -m tests.matrix $(ARGS)

proof-model: .venv/.ready  ## explore the core in all worlds, then its mutants; half an hour of a core and more, goes on where it was stopped; STATES=n
	@$(PY) -m tests.proof.model --states $(STATES) --write docs/proof $(ARGS)
	@$(PY) -m tests.proof.model --level 2 --states $(STATES) --write docs/proof $(ARGS)
	@$(PY) -m tests.proof.model --mutants --write docs/proof
	@$(PY) -m tests.proof.tla --write docs/proof
	@$(PY) -m tests.proof.results docs/proof

proof-sessions: .venv/.ready  ## explore one session for many tasks, which no worker has yet; goes on where it was stopped; STATES=n
	@$(PY) -m tests.proof.sessions --states $(STATES) --write docs/proof $(ARGS)
	@$(PY) -m tests.proof.sessions --level 2 --states $(STATES) --write docs/proof $(ARGS)
	@$(PY) -m tests.proof.sessions --mutants --write docs/proof
	@$(PY) -m tests.proof.sessions.tla --write docs/proof

proof-mutants: .venv/.ready  ## take rules out of the shell, one at a time; tests must catch each; half an hour of a core, goes on where it stopped
	@$(PY) -m tests.mutants --write docs/proof $(ARGS)
	@$(PY) -m tests.proof.results docs/proof

proof-spark: .venv/.ready  ## 200 kills of drivers that write staged, in 10 parts, restartable; two and a half hours; results in docs/proof
	@$(PY) -m tests.spark.proof_staged --write docs/proof $(ARGS)
	@$(PY) -m tests.proof.results docs/proof

proof-faults: .venv/.ready  ## kill, restart and cut off nodes of three under load, in 7 parts, restartable; ARGS="--seconds 600"
	@$(PY) -m tests.fault.proof_faults --write docs/proof $(ARGS)
	@$(PY) -m tests.proof.results docs/proof

check: .venv/.ready  ## lint, format, strict types, layers, and which recorded proofs are out of date
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m pytest -q tests/test_layers.py tests/test_repository.py
	$(PY) -m tests.proof.current docs/proof

bench: .venv/.ready  ## ratios against a hand-written transactional loop, on a real broker
	@$(PY) benchmarks/run.py $(ARGS)

bench-spark: .venv/.ready  ## ratios of Spark against one native worker, at-least-once, and unsafe and raw writing; and its start
	@$(PY) benchmarks/run.py --only spark --only staged --only spark-start $(ARGS)

bench-peers: .venv/.ready  ## the same jobs in Kafka Streams, Quix Streams and Faust, checked, compared and killed; ARGS=--quick
	@$(PY) benchmarks/peers/run.py $(ARGS)

proof-simulation: .venv/.ready  ## 100,000 seeds of the simulation, and 10,000 with all strategies, in 22 parts, restartable; about five hours of a core; results in docs/proof
	@for part in $$(seq 0 19) 200 201; do \
	  $(PY) -m tests.proof.simulation --jobs $(JOBS) --shrink --seeds $$((part * 5000)):$$((part * 5000 + 5000)) \
	    --write docs/proof/simulation-$$(printf %02d $$part).json || exit 1; \
	done
	@$(PY) -m tests.proof.results docs/proof

docs: .venv/docs/.ready  ## the pages as a site, with search and an API reference; links are checked; OUT=folder (.venv/docs/site)
	@.venv/docs/env/bin/python -m docs.site $(if $(OUT),--out "$(OUT)") $(ARGS)

.venv/docs/.ready: .venv/.ready .ci/requirements/docs.lock
	@.ci/setup docs

sbom: .venv/.ready  ## the bill of materials (CycloneDX) and the licences of all locked packages, in dist/; ARGS="--out PLACE"
	@$(PY) -m tests.install.sbom --check $(ARGS)

lock: .venv/.ready  ## make the locked dependencies anew, with the newest versions that are allowed
	@.ci/lock

clean:  ## remove the environment and everything that was built
	rm -rf .venv dist build
