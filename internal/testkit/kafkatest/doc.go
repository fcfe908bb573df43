// Package kafkatest runs a real Apache Kafka for tests: one node in KRaft mode, on
// free ports of 127.0.0.1, with its store in a temporary directory.
//
// Start gives a test a broker of its own, which it may kill and restart; Shared gives it one
// that all tests of the process use. ReadJava and JavaPartitions read and partition with the
// Java client, which most consumers use. A [Node] is for tests that run a cluster themselves, also
// one of another version, with or without a [ZooKeeper].
//
// # Requirements
//
// A JDK, 17 or newer, and, once, Maven with access to Maven Central. Tests are
// skipped where there is none, unless FEEDBRIDGE_REQUIRE_KAFKA=1 is set: then
// they fail. Tests that use this package have the build tag integration.
//
// The jars (about 44 MB) are named by testdata/pom.xml. They are copied to feedbridge-kafka in
// the user's cache directory, or to KAFKATEST_DIR; from then on nothing is downloaded. Beside
// them, for each version of Java, are a formatted store, of which each broker gets a copy, and
// an archive of loaded classes, which halves the start time of a JVM. The directory may be
// removed at any time when no test runs.
//
// # How the broker differs from one in production
//
//   - It has a heap of 512 MiB and only the quick compiler (C1): do not measure the performance
//     of a broker without Java("-XX:TieredStopAtLevel=4").
//   - It does not create topics unasked, and its internal topics have one
//     partition, one replica.
//   - A broker that was killed is let in again after 2 s instead of 9 s.
//
// All else is Kafka's default, unless an Option says otherwise. On Linux the
// kernel kills the broker with the process that started it, however that ends.
package kafkatest
