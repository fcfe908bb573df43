# What people type first. The steps of the gate are targets, too, in its order, and the random runs that it does not have.
steps := format generated modules vet lint consumers race noembedded upgrade release chart nats kafka fleet browser site crashes
random := fuzz chaos
.PHONY: build test gate $(steps) $(random)

build:
	go build -o feedbridge ./cmd/feedbridge

test:
	go test ./...

gate:
	.ci/run

$(steps) $(random):
	.ci/run $@
