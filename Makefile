# Every target sets up what it needs by itself: .venv, from the locked dependencies.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

HOOK_DIR ?= dist
PYINSTALLER := .venv/bin/pyinstaller
NOT_IN_THE_HOOK := _bz2 _hashlib _lzma _ssl inspect pkgutil typing unittest
PYTHON_IN_VENV := .venv/bin/python
# In the order of folders: sorted by their number of tests, the longest files would come last.
ALL_TESTS := -n 3 --dist loadfile --no-loadscope-reorder --cov --cov-branch --cov-fail-under=100
# Links of pages lead to these, so they are where they are in the repository.
SITE := $(wildcard *.md) docs examples manifests simulator LICENSE
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' accelbind/__init__.py)
KIND_IMAGES := webhook plugin certs
SOAK_FOR := $(if $(filter command line,$(origin SECONDS)),SOAK_SECONDS=$(SECONDS))
SOAK_FROM := $(if $(SEED),SOAK_SEED=$(SEED))
COMPILE := .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-emit-find-links --no-header

.PHONY: help setup demo test e2e test-compose test-kernel lint format bench golden docs site picture soak hook lock proto kind stamp release-files publish clean

help: ## Show this
	@echo "accelbind: make <target>"
	@sed -nE 's/^([a-z0-9-]+):.*## /  \1\t/p' Makefile | expand -t 16

setup: ## Make .venv from requirements-dev.lock (the others do it by themselves)
	@.ci/venv

demo: setup ## Show the whole suite on this machine: no cluster, no card
	@$(PYTHON_IN_VENV) -m accelbind demo $(DEMO_ARGS)

test: setup ## Run all tests in three processes (PYTEST_ARGS='-k names': some in one, without the coverage gate)
	@$(PYTHON_IN_VENV) -m pytest $(or $(PYTEST_ARGS),$(ALL_TESTS))

e2e: setup ## Test a cluster: KUBECONFIG=FILE [HOST_PROCESSES=1], or SIMULATOR=1 (HELP=1: all settings)
	@$(PYTHON_IN_VENV) -m tests.e2e $(if $(HELP),--help)

test-compose: setup ## Build the images and run docker-compose.yml with a Docker engine (root, minutes)
	@REQUIRE_ALL=1 PATH="$$PATH:/usr/sbin:/sbin" $(PYTHON_IN_VENV) -m pytest -s \
		tests/compose/with_docker.py $(PYTEST_ARGS)

test-kernel: setup ## Test on Linux's own drivers, with emulated cards (PYTEST_ARGS='-k names': some of it)
	@$(PYTHON_IN_VENV) -m tests.kernel $(PYTEST_ARGS)

lint: setup ## Check style, types and layers
	@$(PYTHON_IN_VENV) -m ruff check
	@$(PYTHON_IN_VENV) -m ruff format --check
	@$(PYTHON_IN_VENV) -m mypy
	@$(PYTHON_IN_VENV) -c 'from importlinter.cli import lint_imports_command as run; run()' --no-logo

format: setup ## Format the code and fix what can be fixed
	@$(PYTHON_IN_VENV) -m ruff check --fix
	@$(PYTHON_IN_VENV) -m ruff format

bench: setup ## Measure, and print medians and ratios (BENCHES='plugin scan': some of it)
	@$(PYTHON_IN_VENV) -m tools.bench $(BENCHES)

docs: setup ## Generate reference and CRD pages
	@$(PYTHON_IN_VENV) -m tools.docs

site: setup ## Build the documentation site in build/site, and check its links
	@rm -rf build/pages build/site && mkdir -p build/pages
	@ln -s $(addprefix $(CURDIR)/,$(SITE)) build/pages/
	@NO_MKDOCS_2_WARNING=1 $(PYTHON_IN_VENV) -m mkdocs build --strict

picture: setup ## Make docs/demo.svg anew, from the demo
	@$(PYTHON_IN_VENV) -m accelbind demo --svg docs/demo.svg >/dev/null

golden: setup ## Regenerate tests/golden/files: what must not change unnoticed
	@$(PYTHON_IN_VENV) -m tests.golden

soak: setup ## Run the long tests at full length (SECONDS=600 each, SEED=7 to repeat a run)
	@SOAK=1 $(SOAK_FOR) $(SOAK_FROM) $(PYTHON_IN_VENV) -m pytest -m "long or soak" --timeout=0 -s $(PYTEST_ARGS)

hook: $(if $(filter command line,$(origin PYINSTALLER)),,setup) ## Build the OCI hook as a folder with a Python of its own (HOOK_DIR=dist)
	@$(PYINSTALLER) --noconfirm --log-level WARN --onedir --name accelbind-hook \
		--distpath "$(HOOK_DIR)" --workpath "$(HOOK_DIR)/.work" --specpath "$(HOOK_DIR)/.work" \
		$(addprefix --exclude-module ,$(NOT_IN_THE_HOOK)) accelbind/hook.py
	@rm -rf "$(HOOK_DIR)/.work"
	@echo "· $(HOOK_DIR)/accelbind-hook: copy the folder to the node as /opt/accelbind/hook"

lock: ## Resolve the dependencies of pyproject.toml again (needs a package index)
	@[[ -x .venv-lock/bin/uv ]] || { python3 -m venv .venv-lock && \
		.venv-lock/bin/python -m pip install --quiet --quiet --disable-pip-version-check uv; }
	@$(COMPILE) --extra dev --output-file requirements-dev.lock pyproject.toml
	@$(COMPILE) --constraint requirements-dev.lock --output-file requirements.lock pyproject.toml
	@echo "· requirements.lock and requirements-dev.lock are up to date"

proto: setup ## Generate the gRPC stubs from services/kubelet/*.proto
	@$(PYTHON_IN_VENV) -m grpc_tools.protoc -I . --python_out=. --pyi_out=. --grpc_python_out=. \
		services/kubelet/*.proto

kind: ## Create a kind cluster with accelbind and synthetic cards (needs Docker, kind and kubectl)
	@for image in $(KIND_IMAGES); do docker build --quiet --target $$image --tag accelbind-$$image:$(VERSION) .; done
	@kind create cluster
	@kind load docker-image $(KIND_IMAGES:%=accelbind-%:$(VERSION))
	@kubectl label --overwrite nodes --all accelbind.dev/plugin=true
	@kubectl apply --server-side -k examples/kind
	@kubectl -n accelbind-system rollout status deployment/accelbind-webhook --timeout 5m
	@kubectl -n accelbind-system rollout status daemonset/accelbind-plugin --timeout 5m

stamp: setup ## Write the version of accelbind/__init__.py into all files that have it
	@$(PYTHON_IN_VENV) -m tools.release stamp

release-files: setup ## Write chart, manifests and wheel into dist/release ([REGISTRY=HOST/OWNER SOURCE=URL TAG=vVERSION])
	@$(PYTHON_IN_VENV) -m tools.release files

publish: setup ## Push and sign images and chart, and create the release (REGISTRY, SOURCE, REVISION, TAG)
	@$(PYTHON_IN_VENV) -m tools.release publish

clean: ## Remove .venv and everything that tools leave behind
	@rm -rf .venv .venv-lock .venv.flock .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache .coverage build dist mutants
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
