# Each target is a thin call of a script that needs only sh and python3.

.PHONY: demo test test-long check unit cover test-pythons chaos fuzz proto bench bench-allocator bench-tasks docs reference dist deb clean

demo:  ## a real cluster on this machine, then the paper's example and a word count
	@sh deploy/demo.sh

test:  ## every check there is
	@sh tests/run.sh

test-long:  ## tests that make random runs, with all of them: TEST_EFFORT=percent
	@sh tests/long.sh

check:  ## format, lint, types, import contracts: under 30 seconds
	@sh tests/check.sh

unit:  ## unit tests and scenarios that match words: make unit T=limit, T='limit and role'
	@sh tests/unit.sh "$(T)"

cover:  ## branch coverage; fails below 90 % in a pure package
	@sh tests/cover.sh

test-pythons:  ## unit, scenario and property tests on each Python from 3.11 to 3.14 that is found
	@sh tests/pythons.sh

chaos:  ## faults in virtual time and with real processes: SEED=n SEEDS=n ROUNDS=n PARTITIONS=n
	@sh tests/chaos/run.sh

bench:  ## latency of a re-offer, and what a pass costs
	@sh tests/bench/run.sh

bench-allocator:  ## the allocator alone: a table on standard error, JSON lines on standard output
	@sh deploy/setup.sh dev >&2
	@.venv/bin/python tests/bench/allocator.py

bench-tasks:  ## short tasks beside xargs, JSON lines: SLOTS=2,64 SCENARIOS=offers,latency PEERS=1
	@sh deploy/setup.sh dev >&2
	@.venv/bin/python -m tests.bench.tasks

fuzz:  ## hostile messages and files against real daemons: SECS=n SEED=n
	@sh tests/fuzz/run.sh

proto:  ## regenerate the code of proto/croupier/v1
	@python3 proto/generate.py

docs:  ## the documentation as a site in .site, without warnings
	@sh deploy/setup.sh dev
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet --strict -f docs/site/mkdocs.yml
	@echo "open .site/index.html"

dist:  ## the wheel, the sdist and their SBOM in dist/; tries both in empty environments
	@sh deploy/dist.sh
	@sh deploy/try_dist.sh

deb:  ## a Debian package in dist/, for releases with Python 3.11 to 3.13, and its test
	@sh deploy/debian/build.sh
	@sh deploy/setup.sh dev
	@.venv/bin/python -m pytest -q tests/e2e/debian_package.py

reference:  ## rewrite the generated pages of docs/reference
	@sh deploy/setup.sh dev
	@.venv/bin/python -m docs.site.reference

clean:
	rm -rf .site .venv .venvs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
