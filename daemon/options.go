package daemon

import (
	"log/slog"
	"os"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/config"
)

// Options are the parameters of a daemon besides its configuration.
type Options struct {
	// Version holds the version of the program. It is logged, and is part of /status,
	// /metrics and the User-Agent.
	Version string
	// Program is the command that starts the program again in this directory, and Flags are those by which its
	// commands find this configuration.
	Program string
	Flags   []string
	// Log is required.
	Log *slog.Logger
	// LogQueue is what Log writes to; nil if that is no queue.
	LogQueue *LogQueue
	// Observer is called for all feeds, concurrently, and must not block. It may be nil.
	Observer bridge.Observer
	// Load reads the configuration again, for a reload. Nil means that it cannot be reloaded.
	Load func() (*config.Config, error)
	// Reload requests a reload with each value. It may be nil.
	Reload <-chan os.Signal
	// Level is the level of Log. Nil means that a reload cannot change it.
	Level *slog.LevelVar
	// Started is called once, when everything listens and before the first poll. It may
	// be nil.
	Started func(Addresses)
}

// Addresses are the URLs at which a daemon listens, without a path, and the path of its socket. One
// that it does not have is empty.
type Addresses struct {
	Bus    string // the embedded bus
	Status string // the admin server
	Socket string // the admin server
	Feeds  string // the served feeds
}
