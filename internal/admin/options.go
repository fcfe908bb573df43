package admin

import (
	"log/slog"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/admin/statuspage"
	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// Program is how a person starts another command of this program.
type Program = statuspage.Program

// Options describe the process.
type Options struct {
	// Version is the version of the program.
	Version string
	// Started holds the time when the process started.
	Started time.Time
	// Writer names this copy, as its checkpoints do.
	Writer string
	// Config is the path of the configuration file, which clients compare with theirs; empty without one.
	Config string
	// Program is how the status pages name commands.
	Program Program
	// Buses are asked whether they answer by /readyz and /status; see [Server.AddBus].
	Buses []Bus
	// Log gets the errors of the server itself.
	Log *slog.Logger
	// Connections limits the number of clients connected at a time. For one more, the
	// client that has been idle or slow for longest is disconnected, once it has been so
	// for 250ms. Default 64.
	Connections int
	// Redact hides the secrets of URLs in all answers. Nil means one that
	// knows the usual names of parameters.
	Redact *safetext.Redactor
	// Token returns the token that a change by TCP needs. It is called for each of them.
	// Nil means that the TCP address is read-only.
	Token func() (credential.Secret, error)
	// Hosts are the names that a Host header may have besides those that are not in the
	// public DNS.
	Hosts []string
	// Fleet is the membership of this copy in a fleet; nil without one.
	Fleet *Fleet
	// LogDropped returns the number of lines of the log that were dropped, and LogStuck for how long the output
	// of the log has not taken a line. Nil means none.
	LogDropped func() uint64
	LogStuck   func() time.Duration
	// SlowHosts returns the hosts that are asked less often. Nil means none.
	SlowHosts func() []status.SlowHost
	// Lists returns the lists of feeds, in order. Nil means none.
	Lists func() []status.List
}
