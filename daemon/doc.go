// Package daemon builds buses, feeds and servers from a configuration and runs them.
//
// [Run] is a complete feedbridge within a process: the connections to the buses, or the
// embedded bus; a bridge for each feed; the server of topics as feeds; and the
// server for health, metrics and status. It keeps no state of its own. If the process dies
// at any time, another Run with the same configuration continues from the checkpoints on
// the buses.
//
// The rest of the package is for commands, which create nothing: [OpenBus] connects to one
// bus, [NewSources] reads one feed, [ServedFeed] reads a topic as a feed, and
// [CheckConnections] tries all of them.
package daemon
