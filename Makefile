# Each target is a thin call of a script that needs only sh and python3.

.PHONY: demo test proto bench clean

demo:  ## a real cluster on this machine, then the paper's example and a word count
	@sh deploy/demo.sh

test:  ## every check there is
	@sh tests/run.sh

bench:  ## latency of a re-offer, and what a pass costs
	@sh tests/bench/run.sh

proto:  ## regenerate the code of proto/croupier/v1
	@python3 proto/generate.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
