// Package chaos runs the real program against real servers, injects faults into
// both, and compares the topics with the feeds. It has tests only, with the build
// tag chaos, and needs Linux:
//
//	go test -tags chaos -count=1 ./internal/chaos
//
// docs/crash-matrix.md describes the faults, the table that a run prints and its
// flags.
//
// A [scenario] is one cluster of nats-server or Apache Kafka, of one node or
// three, some copies of feedbridge with one configuration, and some feeds that
// the test serves. The feeds grow in bursts. A scenario works in rounds: it draws
// a fault, injects it into the cluster while the copies are killed and frozen
// beside it, heals everything, waits until the topics have caught up, and reads
// them back with plain consumers. Several scenarios run side by side.
//
// The test runs in namespaces of its own where the machine allows it, as root or
// with unprivileged user namespaces. There each server has its own network
// namespace and address, and its store is a small tmpfs. Network partitions and full
// disks need that; elsewhere they are skipped. All processes end with the test,
// however it ends.
package chaos
