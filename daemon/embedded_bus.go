package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/sink/nats/embedded"
)

// openEmbedded returns the URL of the embedded bus, and its server if that runs in this
// process.
type openEmbedded func(dataDir, listen string, log *slog.Logger) (server *embedded.Server, url string, err error)

// CheckBuild returns an error of the type [config.Errors] if the configuration has an embedded
// bus and the program was built without one. Run and OpenBus return it too.
func CheckBuild(cfg *config.Config) error {
	var errs config.Errors
	for _, name := range slices.Sorted(maps.Keys(cfg.Buses)) {
		if cfg.Buses[name].Embedded != nil && !embedded.Built {
			errs = append(errs, &config.Error{Key: "buses." + name + ".embedded", Text: embedded.ErrNotBuilt.Error()})
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return errs
}

func embeddedDir(dataDir string) string { return filepath.Join(dataDir, "jetstream") }

// runEmbedded runs the bus in this process, at the configured address.
func runEmbedded(dataDir, listen string, log *slog.Logger) (*embedded.Server, string, error) {
	server, err := embedded.Start(embedded.Config{Dir: embeddedDir(dataDir), Listen: listen, Log: log})
	if err != nil {
		return nil, "", err
	}
	// A command that finds the directory locked cannot know the port if the system has chosen it.
	if err := os.WriteFile(urlFile(dataDir), []byte(server.URL()), 0o600); err != nil {
		server.Close()
		return nil, "", fmt.Errorf("embedded NATS: %w", err)
	}
	return server, server.URL(), nil
}

// urlFile is the file with the URL of the embedded bus that runs in dataDir, or ran there last.
func urlFile(dataDir string) string { return filepath.Join(dataDir, "embedded-bus.url") }

// attachEmbedded connects a command to the embedded bus. It returns the address of the daemon that
// runs the bus. If none does, it runs the bus itself, at a free port. It returns errNoEmbedded if
// there is no bus in dataDir, and creates none.
func attachEmbedded(dataDir, _ string, log *slog.Logger) (*embedded.Server, string, error) {
	dir := embeddedDir(dataDir)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if full, err := filepath.Abs(dir); err == nil {
			dir = full
		}
		return nil, "", fmt.Errorf("%w: there is no %s; if the feed has been copied before, check data_dir and the directory that this was started in", errNoEmbedded, dir)
	}
	server, url, err := runEmbedded(dataDir, "127.0.0.1:0", log)
	if !errors.Is(err, embedded.ErrLocked) {
		return server, url, err
	}
	running, err := os.ReadFile(urlFile(dataDir))
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("the feedbridge that has the embedded bus is starting; try again")
	}
	return nil, string(running), err
}

var errNoEmbedded = errors.New("the embedded bus has never run")
