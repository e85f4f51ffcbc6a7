# Debian 12 or 13, as root. `make quickstart` and `make test` set up all they need.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TOX := $(VENV)/tox/bin/tox
# Release of the quickstart's nodes: reef or tentacle.
CEPH ?= reef
# Cells of one release are not taken for another's.
ARCHIVE ?= archive$(patsubst %,-%,$(filter-out reef,$(CEPH)))
# Of each target of `make fuzz`.
FUZZ_SECONDS ?= 60

# What the lab needs on its host; and, for the tests, what a campaign needs on a node, and a browser.
PACKAGES := python3-venv openssh-client iproute2 util-linux dmsetup qemu-system-x86 qemu-utils \
	mmdebstrap debian-archive-keyring uidmap e2fsprogs zstd
TEST_PACKAGES := ceph-mon ceph-mgr ceph-osd ceph-common python3-rados fio pdsh collectl \
	cryptsetup-bin openssh-server stress-ng xfsprogs rbd-fuse ceph-mds ceph-fuse chromium \
	chromium-driver sudo faketime lvm2 gcc libc6-dev linux-perf

# Asks dpkg first: it answers at once where there is nothing to do.
define install
	@dpkg-query -W -f '$${db:Status-Status} $${Package}\n' $(1) 2>/dev/null \
		| grep -c '^installed' | grep -qx $(words $(1)) || { apt-get update -q && \
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $(1); }
endef

.PHONY: help quickstart test test-long test-faults fuzz packages test-packages venv lock lint unit contract pythons e2e lab \
	upstream-patches dist release site man clean

help: ## Show the targets
	@grep -hE '^[a-z0-9 -]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

quickstart: packages venv ## The article's story on real Ceph with real LUKS, in a lab (CEPH=tentacle: on 20.2)
	$(BIN)/cbt-crypto lab up --ceph $(CEPH) --nodes 1 --disks 2 --disk-size 4G --memory 4G --name quickstart
	status=0; $(BIN)/cbt-crypto lab run configs/quickstart.yaml -a $(ARCHIVE) --name quickstart || status=$$?; \
	$(BIN)/cbt-crypto lab down --name quickstart; exit $$status

test: test-packages $(TOX) ## Run the whole test suite
	$(TOX)

test-long: test-packages $(TOX) ## Campaigns that take emulated machines long; two hours
	$(TOX) -e py -- -v tests/long

test-faults: test-packages $(TOX) ## Break things under campaigns; writes docs/faults.md; an hour
	$(TOX) -e py -- -v tests/faults

fuzz: venv ## Fuzz everything that reads what others wrote; writes docs/fuzz.md
	$(BIN)/pip install -q atheris
	$(BIN)/python tests/fuzz/fuzz_inputs.py $(FUZZ_SECONDS)

packages: ## Install the Debian packages that the lab needs
	$(call install,$(PACKAGES))

test-packages: ## Install the Debian packages that the tests need
	$(call install,$(PACKAGES) $(TEST_PACKAGES))

venv: $(VENV)/.stamp ## Make the Python environment

# What is installed is what was looked at: exact versions, each by its checksum.
$(VENV)/.stamp: setup.cfg pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --require-hashes -r requirements.lock
	$(BIN)/pip install -q --no-deps --no-build-isolation -e .
	@touch $@

lock: ## Write requirements.lock anew from setup.cfg; wants Python 3.11, as Debian 12 has
	$(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/pip install -q pip-tools
	$(VENV)/lock/bin/pip-compile -q --upgrade --generate-hashes --allow-unsafe --all-build-deps \
		--strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
		--no-annotate --no-header --output-file requirements.lock setup.cfg

lint: $(TOX) ## Check rules, format, layers, and that no code is dead
	$(TOX) -e lint

unit contract e2e lab: $(TOX) ## Run one kind of test only
	$(TOX) -e py -- -n 4 --dist loadgroup tests/$@

upstream-patches: venv ## Count anew what contrib/upstream says of itself (CBT=DIR, a checkout of CBT)
	PYTHONPATH=tests/real $(BIN)/python tests/real/upstream_patches.py $(CBT)

pythons: $(TOX) ## Run unit and contract tests on Python 3.9 and 3.13, where these are installed
	$(TOX) -e py39,py313

dist: $(TOX) ## Build wheel and sdist into dist/, and check them
	$(TOX) -e dist

# debian/ and packaging/ say how. The deb can be built on Debian 12 and wants 13: 12 has no pydantic 2.
release: export PATH := /usr/sbin:/usr/bin:/sbin:/bin
release: dist ## Build wheel, sdist, deb and rpm into dist/
	$(call install,build-essential debhelper dh-python pybuild-plugin-pyproject python3-all python3-setuptools \
		python3-pip python3-wheel rpm)
	dpkg-buildpackage -us -uc -b -tc
	mv ../cbt-crypto_*_all.deb dist/ && rm -f ../cbt-crypto_*.buildinfo ../cbt-crypto_*.changes
	set -e; version=$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' cbt_crypto/__init__.py); \
	rpmbuild -bb --quiet --nodeps --define "version_of_build $$version" --define "_topdir $(CURDIR)/build/rpm" \
		--define "_sourcedir $(CURDIR)/dist" --define "_rpmdir $(CURDIR)/dist" \
		--define "_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm" packaging/cbt-crypto.spec
	ls -l dist

site: $(TOX) ## Build the documentation as a site into site/, and check its links
	$(TOX) -e site

man: $(TOX) ## Make man pages of the commands in man/
	$(TOX) -e man

# tox makes the environments that it tests in; its own holds nothing else.
$(TOX):
	$(PYTHON) -m venv $(VENV)/tox
	$(VENV)/tox/bin/pip install -q tox

clean: ## Remove what make made here
	rm -rf $(VENV) .tox build dist site man *.egg-info
