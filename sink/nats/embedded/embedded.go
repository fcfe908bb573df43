// Package embedded runs a NATS server with JetStream inside the process, so
// that feedbridge and its tests need no other program. It is the real server: the nats
// command and any NATS client can connect to it.
//
// The build tag noembedded leaves the server out of the program: [Built] is false then, and
// [Start] fails with [ErrNotBuilt].
package embedded

import (
	"errors"
	"log/slog"
)

// MaxPayload is the largest message that the server takes, in bytes, headers
// included.
const MaxPayload = 8 << 20

// ErrLocked is matched by errors about a directory on which another server runs, in this
// process or in another.
var ErrLocked = errors.New("another process uses")

// Config has the data directory and the address of a server.
type Config struct {
	// Dir is the directory of the store; it is created if it is missing. One
	// server at a time uses it.
	Dir string
	// Listen is a host and port; port 0 is any free one. Default
	// 127.0.0.1:4222. The server has no authentication: every client that reaches
	// the port may read and write.
	Listen string
	// Log receives the server's log: warnings and errors as warnings, the rest
	// as debug messages.
	Log *slog.Logger
}

// ErrNotBuilt is returned by [Start] in a program that was built with the tag noembedded.
var ErrNotBuilt = errors.New("this program was built without the embedded NATS server (build tag noembedded): configure a bus of the kind nats or kafka, or use the standard build")
