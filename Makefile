# make serve    start the server on this machine
# make test     everything the project promises, tested
# make hosts    the adapters, tested against the frameworks that they are for
# make models   recall by meaning, measured with a model that runs here
# Both set up what they need in .venv on their first run.

PYTHON ?= python3
BIN := .venv/bin
JOBS ?= 3

.PHONY: serve test programs hosts models lint types docs bench soak torture proof audit lock clean

serve: .venv/.installed
	$(BIN)/holdfast serve

# The processes that tests start read compiled files, also where the environment forbids to write any.
test torture: export PYTHONDONTWRITEBYTECODE =

test: programs
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

programs: .venv/.tested
	@.ci/programs $(BIN)/python

# Frameworks pin against one another and against what is tested above, so they have an environment of
# their own, with every version written down: nothing is resolved.
hosts: .venv/hosts/.installed .venv/.tested
	.venv/hosts/bin/python -m pytest -c tests/hosts/pytest.ini -n 2 tests/hosts
	$(BIN)/pyright -p tests/hosts

.venv/hosts/.installed: requirements-hosts.lock | .venv/bin/pip
	$(BIN)/python -m venv --clear --without-pip $(@D)
	$(BIN)/pip --python $(@D) install --quiet --no-deps --requirement $<
	$(BIN)/pip --python $(@D) install --quiet --no-deps --editable .
	touch $@

# The tests that load a model, in an environment of their own: torch is large.
models: .venv/models/.installed
	.venv/models/bin/python -m pytest -n 0 -m model tests/memories/longterm/test_local_model.py

.venv/models/.installed: pyproject.toml requirements.lock | .venv/bin/pip
	$(BIN)/python -m venv --clear --without-pip $(@D)
	$(BIN)/pip --python $(@D) install --quiet --constraint requirements.lock --editable '.[all,local]' \
	    --group test --group models
	touch $@

lint: .venv/.tested
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: .venv/.tested
	$(BIN)/pyright

docs: .venv/.tested
	$(BIN)/pytest -n $(JOBS) tests/docs

bench: .venv/.tested .venv/bench/.installed .venv/hosts/.installed .venv/peers/.installed
	$(BIN)/python bench/run.py

# What others' stores need, apart from what is tested, whose versions it must not change.
.venv/bench/.installed: pyproject.toml | .venv/.tested
	$(BIN)/pip install --quiet --upgrade --target $(@D) --group bench
	touch $@

# The products that ours is measured beside, in an environment of their own, every version written down.
.venv/peers/.installed: requirements-peers.lock | .venv/bin/pip
	$(BIN)/python -m venv --clear --without-pip $(@D)
	$(BIN)/pip --python $(@D) install --quiet --no-deps --requirement $<
	$(BIN)/pip --python $(@D) install --quiet --no-deps --editable .
	touch $@

# Fifteen minutes of steady load over fixed data: memory, descriptors, threads and log stay as they are.
soak: .venv/.tested
	$(BIN)/python bench/soak.py

# The long form of tests: random input with many examples, killed processes with many lives, power cut
# at many moments, clients that act for long, each contract on every surface, every benchmark once.
torture: programs .venv/hosts/.installed .venv/peers/.installed
	HOLDFAST_TORTURE_LIVES=1000 HOLDFAST_TORTURE_CUTS=5000 HOLDFAST_TORTURE_SECONDS=120 \
	    $(BIN)/pytest -n 2 --timeout 7200 tests/torture
	HOLDFAST_TORTURE_LIVES=1000 $(BIN)/pytest tests/doors/console/browser/test_lists.py
	HOLDFAST_MOUNT_STEPS=10000 $(BIN)/pytest --timeout 3600 tests/doors/mount/real/test_random.py
	HOLDFAST_EXAMPLES=full $(BIN)/pytest -n 2 --timeout 7200 -m hypothesis
	HOLDFAST_EXAMPLES=full $(BIN)/pytest -n 2 --timeout 7200 tests/memories/durable/test_faults.py
	HOLDFAST_ALL_SURFACES=1 $(BIN)/pytest -n 2 tests/contracts tests/servers tests/tools tests/doors/adapters
	HOLDFAST_BENCHES=all $(BIN)/pytest tests/bench
	$(BIN)/pytest --timeout 600 tests/torture/wheel_install.py

# Attacks all that is promised for about 100 minutes, and writes docs/proof.md.
proof: programs .venv/audit/.installed
	cd tests && ../$(BIN)/python -m torture.proof

# Licences and known weaknesses of what the lock file names; a package that cannot be checked fails it.
audit: .venv/.tested .venv/audit/.installed
	$(BIN)/python scripts/licences.py
	.venv/audit/bin/pip-audit --strict --no-deps --disable-pip --requirement requirements.lock

.venv/audit/.installed: | .venv/bin/pip
	$(BIN)/python -m venv --clear --without-pip $(@D)
	$(BIN)/pip --python $(@D) install --quiet 'pip-audit>=2.10'
	touch $@

# Write down the versions that the tests ran with; they are what a clean clone installs.
lock: .venv/.tested
	$(BIN)/pip freeze --exclude-editable --exclude holdfast > requirements.lock

clean:
	rm -rf .venv

.venv/.installed: pyproject.toml requirements.lock | .venv/bin/pip
	$(BIN)/pip install --quiet --constraint requirements.lock --editable '.[all]'
	touch $@

.venv/.tested: .venv/.installed .venv/sdk-0.97/.installed .venv/mcp-1/.installed
	$(BIN)/pip install --quiet --constraint requirements.lock --group test --group lint
	touch $@

# The oldest release of the anthropic SDK that we promise to serve, for tests/wire.
.venv/sdk-0.97/.installed: requirements-sdk-oldest.lock | .venv/bin/pip
	$(BIN)/python -m venv --clear --without-pip $(@D)
	$(BIN)/pip --python $(@D) install --quiet --requirement $<
	touch $@

# The oldest client of release 1 of the Model Context Protocol's SDK that speaks HTTP, for tests/doors/mcp.
.venv/mcp-1/.installed: requirements-mcp-oldest.lock | .venv/bin/pip
	$(BIN)/python -m venv --clear --without-pip $(@D)
	$(BIN)/pip --python $(@D) install --quiet --requirement $<
	touch $@

.venv/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "holdfast needs Python 3.11 or newer; name one: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || \
	    { echo "Python's venv module is missing. Debian, Ubuntu: apt install python3-venv" >&2; rm -rf .venv; exit 1; }
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
