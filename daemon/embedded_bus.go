package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
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
	return server, server.URL(), nil
}

// attachEmbedded connects a command to the embedded bus. It returns the address of the daemon that
// runs the bus. If none does, it runs the bus itself, at a free port. It returns errNoEmbedded if
// there is no bus in dataDir, and creates none.
func attachEmbedded(dataDir, listen string, log *slog.Logger) (*embedded.Server, string, error) {
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
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, "", err // the configuration was checked
	}
	if port == "0" {
		return nil, "", errors.New("a running feedbridge has the embedded bus on a random port; stop it, or set a port in embedded.listen")
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return nil, "nats://" + net.JoinHostPort(host, port), nil
}

var errNoEmbedded = errors.New("the embedded bus has never run")
