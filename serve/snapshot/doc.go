// Package snapshot builds snapshots of a topic: its current state, so that a new
// reader need not read the whole history.
//
// A snapshot belongs to a moment, a multiple of [Config.Every], whenever it is
// built, and depends on nothing but the topic and the configuration. So all copies
// of a server, and a server that was restarted, have the same snapshots under the
// same IDs. Where a topic or a configuration differs, so do the IDs.
//
// A [Store] keeps the newest snapshots of one feed in temporary files that have no
// name, so that a process that is killed leaves nothing behind.
package snapshot
