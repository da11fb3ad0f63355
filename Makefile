# The verbs of development. `make` builds, `make test` sets up and runs every test; the work is done
# by dev/setup and dev/test.py, which need nothing but Python's standard library.

PYTHON := $(if $(wildcard .venv/bin/python),.venv/bin/python,python3)

.DEFAULT_GOAL := build
.PHONY: build test test-all test-quick test-preset fuzz lint format coverage docs site release clean help

build: ## Build the libraries and tools into build/release, and set up .venv
	@$(PYTHON) dev/setup lab

test: ## Set up, then test the release build and the lab whole, and the heaps under sanitizers
	@$(PYTHON) dev/setup dev
	@.venv/bin/python dev/test.py test

test-all: ## Set up, then run every test of every build: half an hour
	@$(PYTHON) dev/setup dev
	@.venv/bin/python dev/test.py all

test-quick: ## Set up, then run the tests of the release build and of the lab, and the checks
	@$(PYTHON) dev/setup dev
	@.venv/bin/python dev/test.py quick

test-preset: ## Test one build, which needs no set-up: make test-preset PRESET=asan [TARGETS=... TESTS=REGEX]
	@$(PYTHON) dev/test.py preset "$(PRESET)" "$(TARGETS)" "$(TESTS)"

fuzz: ## Fuzz with clang's libFuzzer: make fuzz [SECONDS_EACH=60 TARGET=...]
	@tests/fuzz/run $(or $(SECONDS_EACH),60) $(TARGET)

lint: ## Check the sources only: ruff, mypy, and clang's tools if they are installed
	@$(PYTHON) dev/setup dev
	@.venv/bin/python dev/test.py lint

format: ## Format all sources
	@$(PYTHON) dev/setup dev
	@.venv/bin/python dev/test.py format

coverage: ## Print how much of the engine the tests run, and check it against a floor
	@dev/coverage

docs: ## Write what documents repeat of the sources: the options
	@$(PYTHON) dev/generate

site: ## Build the documentation site into build/site
	@$(PYTHON) dev/site/build

release: ## Build every artefact into dist/, if all is ready for a release: make release [SNAPSHOT=1]
	@$(PYTHON) dev/release --build $(if $(SNAPSHOT),--snapshot)

clean: ## Remove what was built and set up: build/, dist/ and .venv/
	rm -rf build dist .venv

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20
