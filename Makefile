# What people type first. The steps of the gate are targets, too, in its order.
steps := format modules vet lint consumers fuzz race noembedded upgrade release chart kafka fleet browser site chaos
.PHONY: build test gate $(steps)

build:
	go build -o feedbridge ./cmd/feedbridge

test:
	go test ./...

gate:
	.ci/run

$(steps):
	.ci/run $@
