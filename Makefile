# A door for people: each target is a line of `touchstone` or of a tool, once scripts/setup.sh is through.
#
# A value can hold anything: the name of a file that somebody handed in, for one. So values are taken
# unexpanded ($(value ...)), quoted for the shell, and kept out of the environment (make expands what
# it exports, $(shell ...) included).
SETTINGS := TASK SUB PROFILE NAME HELDOUT WORKERS YES RERUN STORE PYTHON TESTS JOBS
unexport $(SETTINGS) PYTHONPATH PYTHONHOME
MAKEOVERRIDES =

SHELL := /bin/sh
.SHELLFLAGS := -ec
# A recipe is one script: a newline in a value ends no command.
.ONESHELL:
.SUFFIXES:
.DEFAULT_GOAL := help
.PHONY: help eval validate leaderboard setup test lint

EXAMPLE := TASK=rl-offpolicy-continuous SUB=submissions/examples/weighted_twin.patch

quoted = '$(subst ','\'',$(value $(1)))'
# The value on the command line. What the environment has under such names (WSL sets NAME) was meant
# for other programs.
given = $(if $(findstring command line,$(origin $(1))),$(value $(1)))
option = $(if $(call given,$(1)),--$(2)=$(call quoted,$(1)))
switch = $(if $(filter-out 1,$(call given,$(1))),$(error $(1) takes 1 or nothing))$(if $(call given,$(1)),--$(2))
need = $(foreach name,$(1),$(if $(call given,$(name)),,$(error make $@ needs $(name)=..., for example: make $@ $(EXAMPLE))))

set_up = $(if $(call given,PYTHON),PYTHON=$(call quoted,PYTHON) )./scripts/setup.sh
touchstone := exec .venv/bin/touchstone
python := .venv/bin/python

define HELP
Touchstone trains and scores submitted reinforcement-learning algorithms.

  make eval TASK= SUB=        train, score, report; the same command again goes on where it stopped
      PROFILE=quick           full (the default: core-days), quick (minutes), smoke (plumbing)
      NAME=my-algorithm       the submission's name; else its file's stem
      HELDOUT=my.toml         held-out environments of your own; 0: none, unranked
      WORKERS=2               runs at once; else what cores and memory allow
      YES=1  RERUN=1          do not ask; append an attempt to each run without a score
      STORE=directory         where records and the key are; else runs/
  make validate TASK= SUB=    would it be accepted? which line breaks which rule?
  make leaderboard TASK=      rebuild and show it; PROFILE=, HELDOUT=, STORE= as above
  make test                   TESTS=tests/test_wire.py: these alone; JOBS=1: one after the other
  make lint                   ruff, mypy, import contracts
  make setup                  what the others do first; PYTHON=python3.12: with that one
                              (settings are read from this command line alone)

For example:
  make eval $(EXAMPLE) PROFILE=quick
endef

help:
	@$(info $(HELP)):

eval:
	@$(call need,TASK SUB)$(set_up)
	$(touchstone) eval $(call option,PROFILE,profile) $(call option,NAME,name) \
	  $(call option,HELDOUT,heldout) $(call option,WORKERS,workers) $(call option,STORE,store) \
	  $(call switch,YES,yes) $(call switch,RERUN,rerun) -- $(call quoted,TASK) $(call quoted,SUB)

validate:
	@$(call need,TASK SUB)$(set_up)
	$(touchstone) validate -- $(call quoted,TASK) $(call quoted,SUB)

leaderboard:
	@$(call need,TASK)$(set_up)
	$(touchstone) leaderboard $(call option,PROFILE,profile) $(call option,HELDOUT,heldout) \
	  $(call option,STORE,store) -- $(call quoted,TASK)

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
