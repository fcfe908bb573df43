package daemon

import (
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryShare is Go's soft memory limit as a share of the memory that the process may
// have, in percent. The rest is for memory that Go does not count: the program itself,
// buffers of the system, and the part of the kernel's page cache that counts for the container.
const memoryShare = 85

// LimitMemory sets Go's soft memory limit to a share of the memory of the container or the
// machine, unless GOMEMLIMIT is set in the environment. It does nothing on systems other than
// Linux. Near the limit Go collects garbage earlier; no allocation fails.
func LimitMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit, ok := memoryOf(os.DirFS("/")); ok {
		debug.SetMemoryLimit(limit / 100 * memoryShare)
	}
}

// memoryOf returns how many bytes the process may have: the least of the limits
// of its control groups, of version 1 or 2, and of the machine's memory. It returns
// false if none of them is known, as on systems other than Linux.
func memoryOf(root fs.FS) (least int64, ok bool) {
	least = math.MaxInt64
	take := func(text string, unit int64) {
		if n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64); err == nil && n > 0 && n < least/unit {
			least, ok = n*unit, true
		}
	}
	if meminfo, err := fs.ReadFile(root, "proc/meminfo"); err == nil {
		for line := range bytes.Lines(meminfo) {
			if total, found := strings.CutPrefix(string(line), "MemTotal:"); found {
				take(strings.TrimSuffix(strings.TrimSpace(total), "kB"), 1024)
			}
		}
	}
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range bytes.Lines(groups) {
		parts := strings.SplitN(strings.TrimSpace(string(line)), ":", 3)
		if len(parts) < 3 {
			continue
		}
		dir, file := "sys/fs/cgroup", "memory.max"
		switch {
		case strings.Contains(","+parts[1]+",", ",memory,"):
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case parts[1] != "":
			continue
		}
		// The groups above bound a group as well. In a container the path may be one of
		// the host, and the group is mounted at the top.
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			if limit, err := fs.ReadFile(root, path.Join(dir, group, file)); err == nil {
				take(string(limit), 1)
			}
			if group == "/" {
				break
			}
		}
	}
	return least, ok
}
