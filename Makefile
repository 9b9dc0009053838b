# Everything one does with this project. Each target sets up what it needs first, with nothing but some
# Python 3.11 to 3.13 to start from, and does not do it again unless pyproject.toml or uv.lock have changed.
#
#   make PYTHON=/path/to/python3.12 demo    uses that Python
#   make test ARGS='-k gang -x'             gives more arguments to pytest
#   make image ARGS='--architecture amd64'  gives more arguments to tools/image

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test soak check bench docs clip controlplane image helm helm4 kubectl promtool clean moved release

PYTHON ?=
ARGS ?=
# Tests wait for servers and programs most of the time, so one more than the cores keeps these busy.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

BIN := .venv/bin
UV := .tools/bin/uv
# One virtualenv for all: `make demo` puts in what training needs, the others add the tools for development.
FOR_RUNNING := .venv/.for-running
FOR_DEVELOPMENT := .venv/.for-development

# Virtualenvs contain absolute paths: if the project's folder was moved, both are made anew.
MOVED := $(shell [ ! -e .tools/.made-in ] || [ "$$(cat .tools/.made-in)" = "$$(pwd -P)" ] || echo moved)

# uv must not take the caller's activated virtualenv, nor fetch a Python nobody asked for.
export UV_PROJECT_ENVIRONMENT := .venv
export UV_PYTHON_DOWNLOADS := never
unexport VIRTUAL_ENV
# Nor may it keep Python from remembering what it has compiled: the tests start the command some thousand times, and
# without that each start takes half as long again.
unexport PYTHONDONTWRITEBYTECODE
SYNC := $(UV) sync --locked --python .tools/bin/python --extra tensorflow --group keras2 --compile-bytecode

CHECKS := '$(BIN)/ruff check' '$(BIN)/ruff format --check' '$(BIN)/mypy' '$(BIN)/lint-imports --no-logo' \
	'$(BIN)/pytest -q tests/docs --ignore=tests/docs/test_story.py' '$(UV) lock --check' \
	'$(BIN)/python tools/make_crds.py --check' '$(BIN)/python tools/make_deploy.py --check' \
	'$(BIN)/python tools/make_chart.py --check' '$(BIN)/python tools/make_monitoring.py --check' \
	'$(BIN)/python tools/make_reference.py --check' \
	'$(BIN)/python tools/make_commands.py --check' '$(BIN)/python tools/check_commits.py'

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-14s%s\n", $$1, $$2 }' Makefile

demo: $(FOR_RUNNING) ## train a distributed TensorFlow job on this machine, from nothing
	@$(BIN)/tarragon run examples/tensorflow/ps.yaml

test: $(FOR_DEVELOPMENT) ## run the tests (ARGS='-k gang -x' for pytest, JOBS=2 for fewer at once)
	$(BIN)/pytest -n $(JOBS) --maxprocesses 8 --dist loadgroup $(ARGS)

soak: $(FOR_DEVELOPMENT) ## kill and break things at random, by the hundred (takes long)
	$(BIN)/pytest -m soak $(ARGS)

check: $(FOR_DEVELOPMENT) ## lint, types, layers, docs, lock file, generated files, commit messages; shows every fault, not the first alone
	@result=0; for check in $(CHECKS); do echo "== $$check"; eval "$$check" || result=1; done; exit $$result

bench: $(FOR_DEVELOPMENT) ## measure what docs/benchmarks.md promises
	@set -e; for program in bench/[a-z]*.py; do echo "== $$program"; $(BIN)/python "$$program"; done

docs: $(FOR_DEVELOPMENT) ## build the documentation's site into build/site, and check its links
	@$(BIN)/python tools/make_site.py

clip: $(FOR_DEVELOPMENT) ## record the demo into docs/clip.svg
	@export TARRAGON_HOME=$$(mktemp -d); unset MAKEFLAGS MAKELEVEL; \
	$(BIN)/python -m tools.clip --typed 'make demo' --output docs/clip.svg -- make --silent demo; result=$$?; \
	$(BIN)/tarragon down; rm -rf "$$TARRAGON_HOME"; exit $$result

image: $(UV) ## build the operator's image into dist, for amd64 and arm64; needs Linux and go, but no Docker (docs/install.md)
	@.tools/bin/python -m tools.image build $(ARGS)

controlplane: .tools/kubernetes-1.37/kube-apiserver ## build Kubernetes 1.37's control plane for the tests that use it (needs go, 20 minutes)

helm: .tools/bin/helm ## build helm 3 for the tests that use it (needs go)

helm4: .tools/bin/helm-4 ## build helm 4 for the tests that use it (needs go)

promtool: .tools/bin/promtool ## take promtool out of Debian's package prometheus for the tests that use it

kubectl: .tools/bin/kubectl-1.36 ## build the newest kubectl, and a client with its caches, for the tests that use them (needs go)

release: $(FOR_DEVELOPMENT) ## build, check and describe the packages of this tag (ARGS=--publish uploads them)
	$(BIN)/python tools/release.py $(ARGS)

clean: ## remove what make made; your jobs stay, the embedded cluster is ended
	@if [ -x $(BIN)/tarragon ]; then $(BIN)/tarragon down || true; fi
	rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find tarragon tests tools bench examples -name __pycache__ -type d -prune -exec rm -rf {} +

moved:
	rm -rf .tools .venv

$(UV): tools/bootstrap.sh $(MOVED)
	@tools/bootstrap.sh $(PYTHON)
	@pwd -P > .tools/.made-in
	@touch $@

.tools/kubernetes-1.37/kube-apiserver: tools/install_control_plane.sh tools/kubernetes/go.mod $(MOVED) | $(UV)
	tools/install_control_plane.sh
	@touch $@

.tools/bin/helm: tools/install_helm.sh $(MOVED) | $(UV)
	tools/install_helm.sh 3
	@touch $@

.tools/bin/helm-4: tools/install_helm.sh $(MOVED) | $(UV)
	tools/install_helm.sh 4
	@touch $@

.tools/bin/promtool: tools/install_promtool.sh $(MOVED) | $(UV)
	tools/install_promtool.sh
	@touch $@

.tools/bin/kubectl-1.36: tools/install_kubectl.sh tools/kubectl/go.mod $(MOVED) | $(UV)
	tools/install_kubectl.sh
	@touch $@

$(FOR_RUNNING): pyproject.toml uv.lock $(MOVED) | $(UV)
	$(SYNC) --inexact
	@touch $@

$(FOR_DEVELOPMENT): pyproject.toml uv.lock $(MOVED) | $(UV)
	$(SYNC) --group dev --extra bench --extra jax --extra mpi --extra operator
	@touch $@ $(FOR_RUNNING)
