# A door for people: each target is a line of `touchstone` or of a tool, once scripts/setup.sh is through.
#
# A value can hold anything: the name of a file that somebody handed in, for one. So values are taken
# unexpanded ($(value ...)), quoted for the shell, and kept out of the environment (make expands what
# it exports, $(shell ...) included).
override SETTINGS := TASK SUB PROFILE NAME HELDOUT WORKERS YES RERUN STORE PYTHON TESTS JOBS CURVES FOR_SUBMITTER \
  STOCK SHIP ENV SEED STEPS PDB JSON DATASETS
unexport $(SETTINGS) PYTHONPATH PYTHONHOME
MAKEOVERRIDES =

SHELL := /bin/sh
.SHELLFLAGS := -ec
# A recipe is one script: a newline in a value ends no command.
.ONESHELL:
.SUFFIXES:
.DEFAULT_GOAL := help
.PHONY: help eval validate new source diff rules run datasets references leaderboard export bench setup test lint

EXAMPLE := TASK=rl-offpolicy-continuous SUB=submissions/examples/weighted_twin.patch

quoted = '$(subst ','\'',$(value $(1)))'
reads.new := TASK NAME
reads.rules := JSON
reads.validate := TASK SUB HELDOUT FOR_SUBMITTER JSON
reads.source := TASK SUB
reads.diff := TASK SUB
reads.eval := TASK SUB PROFILE NAME HELDOUT WORKERS YES RERUN STOCK STORE DATASETS
reads.run := SUB ENV SEED STEPS PDB STOCK DATASETS
reads.datasets := TASK PROFILE HELDOUT DATASETS
reads.references := TASK PROFILE HELDOUT WORKERS YES STOCK STORE SHIP DATASETS
reads.leaderboard := TASK PROFILE HELDOUT STORE FOR_SUBMITTER
reads.export := TASK CURVES PROFILE STORE FOR_SUBMITTER
reads.bench := TASK
reads.test := TESTS JOBS
# A setting that the target does not read is a mistake: PROFIL=smoke would start a benchmark of days.
goals := $(filter-out help,$(or $(MAKECMDGOALS),help))
read := PYTHON $(foreach goal,$(goals),$(reads.$(goal)))
unread := $(filter-out $(read) SHELL CURDIR MAKE% MFLAGS -%,$(foreach name,$(.VARIABLES),$(if \
  $(findstring command line,$(origin $(name))),$(name))))
$(if $(goals),$(if $(unread),$(error make $(goals) has no setting $(firstword $(unread)); \
  it has: $(read))))

# The value on the command line. What the environment has under such names (WSL sets NAME) was meant
# for other programs.
given = $(if $(findstring command line,$(origin $(1))),$(value $(1)))
option = $(if $(call given,$(1)),--$(2)=$(call quoted,$(1)))
switch = $(if $(filter-out 1,$(call given,$(1))),$(error $(1) takes 1 or nothing))$(if $(call given,$(1)),--$(2))
setting = $(if $(call given,$(1)),$(1)=$(call quoted,$(1)))
need = $(foreach name,$(1),$(if $(call given,$(name)),,$(error make $@ needs $(name)=..., for example: make $@ $(EXAMPLE))))

set_up = $(if $(call given,PYTHON),PYTHON=$(call quoted,PYTHON) )./scripts/setup.sh
touchstone := exec .venv/bin/touchstone
python := .venv/bin/python

define HELP
Touchstone trains and scores submitted reinforcement-learning algorithms.

  make new TASK= NAME=        write submissions/NAME.py to start from
  make rules                  print every rule, why it is there and what to do
  make validate TASK= SUB=    seconds: would it be accepted? which line breaks which rule?
      HELDOUT=my.toml         held-out environments of your own; 0: visible ones alone
      FOR_SUBMITTER=1         say nothing of held-out environments
      JSON=1                  for programs
  make source SUB=            print the accepted source; TASK= where the text does not tell
  make diff SUB=              print the submission as a patch, the same for every form; TASK=
  make eval TASK= SUB=        train, score, report; the same command again goes on where it stopped
      PROFILE=quick           full (default: core-days), lite (core-hours), quick (minutes), smoke
      NAME=my-algorithm       the submission's name; else its file's stem
      HELDOUT=my.toml         as above; 0: unranked
      WORKERS=2               runs at once; else what cores and memory allow
      YES=1  RERUN=1          do not ask; append an attempt to each run without a score
      STORE=directory         where records and the key are; else runs/
      DATASETS=directory      where an offline task's data are; else datasets/
      STOCK=1                 numeric backends as torch and glibc come: slower
  make run SUB= ENV=Hopper-v4 train one run outside the sandbox, unranked, to look inside
      SEED=7 STEPS=50000      which and how long; PDB=1: a debugger where it raises; STOCK=1,
                              DATASETS= as above
  make datasets TASK=         have an offline task's data made or fetched, checked and prepared;
                              PROFILE=, HELDOUT=, DATASETS= as above
  make references TASK=       evaluate the reference algorithms; PROFILE=, HELDOUT=, WORKERS=, YES=,
                              STORE=, STOCK=, DATASETS= as above
      SHIP=1                  write their runs into the task's directory
  make leaderboard TASK=      rebuild and show it; PROFILE=, HELDOUT=, STORE= as above
      FOR_SUBMITTER=1         without held-out runs
  make export TASK= CURVES=   learning curves into a .parquet or .csv; PROFILE=, STORE=,
                              FOR_SUBMITTER= as above
  make bench                  steps/s against Stable-Baselines3: idle machine, 11 minutes;
                              TASK=rl-value-atari: DQN's; rl-offline-policy: FQL's
  make test                   TESTS=tests/test_wire.py: these alone; JOBS=1: one after the other
  make lint                   ruff, mypy, import contracts
  make setup                  what the others do first; PYTHON=python3.12: with that one

TASK is a directory of tasks/: rl-value-atari, for one. SUB is a path, or - for standard input.
Settings are read from this command line alone.

For example:
  make eval $(EXAMPLE) PROFILE=quick
  make validate TASK=rl-value-atari SUB=reference_algorithms/rl-value-atari/dqn.py
endef

help:
	@$(info $(HELP)):

eval:
	@$(call need,TASK SUB)$(set_up)
	$(touchstone) eval $(call option,PROFILE,profile) $(call option,NAME,name) \
	  $(call option,HELDOUT,heldout) $(call option,WORKERS,workers) $(call option,STORE,store) \
	  $(call switch,YES,yes) $(call switch,RERUN,rerun) $(call switch,STOCK,stock) \
	  $(call option,DATASETS,datasets) -- $(call quoted,TASK) $(call quoted,SUB)

validate:
	@$(call need,TASK SUB)$(set_up)
	$(touchstone) validate $(call option,HELDOUT,heldout) $(call switch,JSON,json) \
	  $(call switch,FOR_SUBMITTER,for-submitter) -- $(call quoted,TASK) $(call quoted,SUB)

new: EXAMPLE := TASK=rl-offpolicy-continuous NAME=my_algorithm
new:
	@$(call need,TASK NAME)$(set_up)
	$(touchstone) new -- $(call quoted,TASK) $(call quoted,NAME)

source diff:
	@$(call need,SUB)$(set_up)
	$(touchstone) $@ $(call option,TASK,task) -- $(call quoted,SUB)

rules:
	@$(set_up)
	$(touchstone) rules $(call switch,JSON,json)

run: EXAMPLE := SUB=reference_algorithms/rl-offpolicy-continuous/td3.py ENV=Hopper-v4
run:
	@$(call need,SUB ENV)$(set_up)
	$(touchstone) run $(call switch,PDB,pdb) -- $(call quoted,SUB) \
	  $(call setting,ENV) $(call setting,SEED) $(call setting,STEPS) $(call setting,STOCK) \
	  $(call setting,DATASETS)

datasets: EXAMPLE := TASK=rl-offline-policy PROFILE=quick
datasets:
	@$(call need,TASK)$(set_up)
	$(touchstone) datasets $(call option,PROFILE,profile) $(call option,HELDOUT,heldout) \
	  $(call option,DATASETS,datasets) -- $(call quoted,TASK)

references: EXAMPLE := TASK=rl-offpolicy-continuous PROFILE=quick
references:
	@$(call need,TASK)$(set_up)
	$(touchstone) references $(call option,PROFILE,profile) $(call option,WORKERS,workers) \
	  $(call option,HELDOUT,heldout) \
	  $(call option,STORE,store) $(call switch,YES,yes) $(call switch,STOCK,stock) \
	  $(call switch,SHIP,ship) $(call option,DATASETS,datasets) -- $(call quoted,TASK)

leaderboard:
	@$(call need,TASK)$(set_up)
	$(touchstone) leaderboard $(call option,PROFILE,profile) $(call option,HELDOUT,heldout) \
	  $(call option,STORE,store) $(call switch,FOR_SUBMITTER,for-submitter) -- $(call quoted,TASK)

export: EXAMPLE := TASK=rl-offpolicy-continuous CURVES=curves.parquet
export:
	@$(call need,TASK CURVES)$(set_up)
	$(touchstone) export $(call option,PROFILE,profile) $(call option,STORE,store) \
	  $(call switch,FOR_SUBMITTER,for-submitter) $(call option,CURVES,curves) -- $(call quoted,TASK)

bench:
	@$(set_up)
	$(python) -m benchmarks.sb3_td3 install
	exec $(python) -m benchmarks.speed $(call option,TASK,task)

setup:
	@$(set_up)

test:
	@$(set_up)
	exec $(python) -m pytest -n $(if $(call given,JOBS),$(call quoted,JOBS),auto) --dist loadgroup -- $(if $(call given,TESTS),$(call quoted,TESTS),tests)

lint:
	@$(set_up)
	failed=0
	$(python) -m ruff check || failed=1
	$(python) -m ruff format --check || failed=1
	$(python) -m mypy || failed=1
	.venv/bin/lint-imports || failed=1
	exit $$failed
