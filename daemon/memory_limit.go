package daemon

import (
	"errors"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/feedbridge/feedbridge/config"
)

// memoryShare is Go's soft memory limit as a share of the memory that the process may
// have. The rest is for memory that Go does not count: the program itself,
// buffers of the system, and the part of the kernel's page cache that counts for the container.
const memoryShare = 0.85

// LimitMemory sets Go's soft memory limit to a share of the memory of the container or the
// machine, unless GOMEMLIMIT is set in the environment. It does nothing if neither is known.
// Near the limit Go collects garbage earlier; no allocation fails.
func LimitMemory() {
	high := func() (uint64, error) { return throttledAt(os.DirFS("/")) }
	_, _ = memlimit.Set(memlimit.WithRatio(memoryShare), memlimit.WithProvider(least(memlimit.FromCgroup, high, memlimit.FromSystem)))
}

// least returns the least of the limits that are known: a container may be allowed more memory than the machine has.
func least(limits ...memlimit.Provider) memlimit.Provider {
	return func() (uint64, error) {
		least, errs := uint64(math.MaxUint64), []error{}
		for _, limit := range limits {
			n, err := limit()
			if err != nil {
				errs = append(errs, err)
				continue
			}
			least = min(least, n)
		}
		if len(errs) == len(limits) {
			return 0, errors.Join(errs...)
		}
		return least, nil
	}
}

// throttledAt returns the memory above which the kernel slows the process down: the least memory.high of its control
// group (version 2) and of those above it. systemd has it as MemoryHigh.
func throttledAt(root fs.FS) (uint64, error) {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, err
	}
	least, err := uint64(math.MaxUint64), memlimit.ErrNoLimit
	for line := range strings.Lines(string(groups)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for ok {
			text, _ := fs.ReadFile(root, path.Join("sys/fs/cgroup", group, "memory.high"))
			if high, bad := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); bad == nil { // not max
				least, err = min(least, high), nil
			}
			ok = group != "/" && group != "."
			group = path.Dir(group)
		}
	}
	return least, err
}

// Memory that a process takes, in bytes. docs/scaling.md has the measurements.
const (
	memoryOfProgram = 64 << 20
	memoryOfFeed    = 25 << 10
	// memoryOfStream is that of the stream of a feed on the embedded bus.
	memoryOfStream = 250 << 10
)

// memoryNeeded estimates the memory that the process takes while all feeds catch up, without their IDs.
func memoryNeeded(cfg *config.Config) int64 {
	needed := memoryOfProgram + cfg.Memory
	if cfg.Serve != nil {
		needed += cfg.Memory
	}
	for _, f := range cfg.Feeds {
		needed += memoryOfFeed
		if cfg.Buses[f.To.Bus].Embedded != nil {
			needed += memoryOfStream
		}
	}
	return needed
}

// warnOfMemory logs that the feeds do not fit in Go's memory limit. Members of a fleet run a part of the feeds, so
// nothing is known of them.
func warnOfMemory(cfg *config.Config, log *slog.Logger) {
	const mib = 1 << 20
	needed, limit := memoryNeeded(cfg), debug.SetMemoryLimit(-1)
	if cfg.Fleet == nil && needed > limit {
		log.Warn("the feeds do not fit in the memory of the process, which will be slow or killed; raise the limit of its service or container (MemoryHigh, MemoryMax), or GOMEMLIMIT",
			"feeds", len(cfg.Feeds), "needed_mib", needed/mib, "limit_mib", limit/mib)
	}
}
