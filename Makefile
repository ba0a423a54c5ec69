# Two commands for everyone: `make up` and `make down`. The rest is for those who work on Rialto.
# CARGO_TARGET_DIR is honoured; CELL is the cell's directory; PREFIX is where `make install` puts things,
# SBIN where mount(8) looks for helpers.

CELL ?= $(CURDIR)/.rialto
PREFIX ?= /usr/local
SBIN ?= /sbin
# Names of OpenAFS's programs; in a directory of their own, since other packages have such programs.
OPENAFS := vos fs pts aklog klog klog.krb5 unlog tokens kpasswd
HELPERS := mount.rialto mount.fuse.rialto umount.rialto umount.fuse.rialto
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
RIALTO := $(TARGET)/release/rialto

.PHONY: help up down status setup build test soak bench fmt lint install uninstall deb images

help:
	@echo "make up        install what is missing, build, make a cell in $(CELL), start and mount it"
	@echo "make down      unmount and stop it; the data stays"
	@echo "make test      everything that guards a change, in some 20 minutes"
	@echo "make soak      the long forms of the same tests, for hours"
	@echo "make bench     measure against the disk and a plain pass-through; writes bench/RESULTS.md"
	@echo "make fmt lint  format; complain"
	@echo "make install   binary, manual pages and completions below $(PREFIX), mount.rialto in $(SBIN);"
	@echo "               make uninstall takes them away"
	@echo "make deb       Debian packages rialto-common, rialto-client and rialto-server"
	@echo "make images    images for containers: rialto-server, rialto-client and rialto-etcd"

up: build
	@$(RIALTO) up --dir "$(CELL)"
	@echo "    or just: make down"

down:
	@if [ -x "$(RIALTO)" ]; then "$(RIALTO)" down --dir "$(CELL)"; else echo "nothing was built here, so nothing runs"; fi

status:
	@$(RIALTO) status --dir "$(CELL)"

setup:
	@scripts/setup.sh run

build: setup
	cargo build --release --locked -p rialto

test:
	@scripts/setup.sh test
	@scripts/check.sh

soak:
	@scripts/setup.sh soak
	@scripts/check.sh --soak

bench: build
	@scripts/setup.sh bench
	@bench/run.sh "$(RIALTO)"

fmt:
	cargo fmt --all

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

install: build
	install -D -m 755 "$(RIALTO)" "$(DESTDIR)$(PREFIX)/bin/rialto"
	"$(RIALTO)" man "$(DESTDIR)$(PREFIX)/share/man/man1"
	install -d "$(DESTDIR)$(PREFIX)/share/bash-completion/completions" \
	    "$(DESTDIR)$(PREFIX)/share/zsh/site-functions" "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d"
	"$(RIALTO)" completions bash > "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/rialto"
	"$(RIALTO)" completions zsh > "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_rialto"
	"$(RIALTO)" completions fish > "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/rialto.fish"
	install -d "$(DESTDIR)$(SBIN)" "$(DESTDIR)$(PREFIX)/share/doc/rialto/systemd"
	for helper in $(HELPERS); do ln -sf "$(PREFIX)/bin/rialto" "$(DESTDIR)$(SBIN)/$$helper"; done
	install -d "$(DESTDIR)$(PREFIX)/lib/rialto/openafs"
	for name in $(OPENAFS); do \
	    ln -sf "$(PREFIX)/bin/rialto" "$(DESTDIR)$(PREFIX)/lib/rialto/openafs/$$name"; done
	install -m 644 packaging/systemd/* packaging/systemd-user/* packaging/pam/rialto \
	    "$(DESTDIR)$(PREFIX)/share/doc/rialto/systemd"
	install -D -m 755 packaging/dump-volumes "$(DESTDIR)$(PREFIX)/libexec/rialto/dump-volumes"

deb: build
	@scripts/setup.sh deb
	@scripts/deb.sh

images: build
	@scripts/setup.sh images
	@scripts/images.sh

uninstall:
	for helper in $(HELPERS); do \
	    if [ "$$(readlink "$(DESTDIR)$(SBIN)/$$helper")" = "$(PREFIX)/bin/rialto" ]; then \
	        rm "$(DESTDIR)$(SBIN)/$$helper"; fi; done
	rm -f "$(DESTDIR)$(PREFIX)/bin/rialto" "$(DESTDIR)$(PREFIX)"/share/man/man1/rialto.1 \
	    "$(DESTDIR)$(PREFIX)"/share/man/man1/rialto-*.1 \
	    "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/rialto" \
	    "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_rialto" \
	    "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/rialto.fish"
	rm -rf "$(DESTDIR)$(PREFIX)/share/doc/rialto" "$(DESTDIR)$(PREFIX)/libexec/rialto" \
	    "$(DESTDIR)$(PREFIX)/lib/rialto"
