# Two commands: `make run` opens the dashboard, `make test` passes the tests. Each makes what it needs in .venv first.
# They need Python 3.10 or newer and make; variables, such as `make run PYTHON=python3.12`:
#
#   PYTHON  the Python that makes the environment
#   TORCH   a torch to install first, as arguments of pip install, such as TORCH=torch==2.13.0
#   TESTS   what pytest runs, such as TESTS="tests/test_lab.py -x"; all tests when empty
#   JOBS    so many processes run all tests side by side, more than cores because many of them wait; one after the other on a
#           GPU, where they would disturb its clocks

PYTHON ?= python3
TORCH ?=
TESTS ?=

VENV := .venv
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check
# Without an NVIDIA driver the tests leave out flash-attn-4 and its CUDA compiler: hundreds of megabytes that cannot run.
DRIVER := $(wildcard /proc/driver/nvidia/version /dev/dxg)
JOBS ?= $(if $(DRIVER),0,3)
# With a screen Streamlit opens the browser; without one it says where the page is.
SCREEN := $(if $(DISPLAY)$(WAYLAND_DISPLAY),--server.headless=false --server.showEmailPrompt=false)

.PHONY: run test lint chromium clean

run: $(VENV)/for-running
	$(VENV)/bin/python -m streamlit run app.py $(SCREEN)

test: $(VENV)/for-tests chromium
	$(VENV)/bin/python -m pytest $(if $(TESTS),$(TESTS),-n $(JOBS) --dist worksteal)

lint: $(VENV)/for-tests
	$(VENV)/bin/python -m ruff check .

clean:
	rm -rf $(VENV)

# Stamps: an environment is made once, and installed into again when the lists change or a torch is asked for.
ifneq ($(TORCH),)
.PHONY: $(VENV)/for-running $(VENV)/for-tests
endif

$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "$(PYTHON) is missing or older than 3.10; choose another: make run PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
	  { echo "this Python cannot make environments; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/for-running: $(VENV)/made requirements.txt
	$(if $(TORCH),$(PIP) $(TORCH))
	$(PIP) -r requirements.txt
	@touch $@

$(VENV)/for-tests: $(VENV)/made requirements.txt requirements-dev.txt
	$(if $(TORCH),$(PIP) $(TORCH))
	$(if $(DRIVER),cat,grep -v '^flash-attn-4') requirements.txt > $(VENV)/requirements.txt
	$(PIP) -r $(VENV)/requirements.txt -r requirements-dev.txt
	@touch $@

# Debian's Chromium, installed when it is missing and we may; otherwise the browser tests skip.
chromium:
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	  as_root=$$([ "$$(id -u)" = 0 ] || echo sudo -n); export DEBIAN_FRONTEND=noninteractive; \
	  command -v apt-get >/dev/null && $$as_root apt-get -qq update && \
	  $$as_root apt-get -qq install --no-install-recommends chromium >/dev/null || \
	  echo "no Chromium here, and it cannot be installed: the browser tests skip"
