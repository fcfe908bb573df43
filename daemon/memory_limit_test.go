package daemon

import (
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/feedbridge/feedbridge/config"
)

func TestTheLesserLimitCounts(t *testing.T) {
	t.Parallel()
	unknown := func() (uint64, error) { return 0, memlimit.ErrNoLimit }
	for name, tt := range map[string]struct {
		container, machine memlimit.Provider
		want               uint64 // 0: not known
	}{
		"a container":                        {memlimit.Limit(512), memlimit.Limit(8000), 512},
		"a container that may have too much": {memlimit.Limit(9000), memlimit.Limit(8000), 8000},
		"no container":                       {unknown, memlimit.Limit(8000), 8000},
		"an unknown machine":                 {memlimit.Limit(512), unknown, 512},
		"nothing is known":                   {unknown, unknown, 0},
	} {
		if got, err := least(tt.container, tt.machine)(); got != tt.want || (err == nil) != (tt.want > 0) {
			t.Errorf("%s: got %d, %v, want %d", name, got, err, tt.want)
		}
	}
}

// The packaged unit has MemoryHigh, of which automemlimit knows nothing.
func TestThrottleCounts(t *testing.T) {
	t.Parallel()
	root := fstest.MapFS{}
	for name, high := range map[string]string{"system.slice/feedbridge.service": "256\n", "system.slice": "128\n", "other": "max\n", "broken": "x"} {
		root["sys/fs/cgroup/"+name+"/memory.high"] = &fstest.MapFile{Data: []byte(high)}
	}
	for text, want := range map[string]uint64{
		"4:memory:/x\n0::/system.slice/feedbridge.service\n": 128, "0::/system.slice\n": 128,
		"0::/other\n": 0, "0::/broken": 0, "0::/\n": 0, "0::\n": 0, "4:memory:/system.slice\n": 0, "": 0, "0::../../system.slice": 0,
	} {
		root["proc/self/cgroup"] = &fstest.MapFile{Data: []byte(text)}
		if got, err := throttledAt(root); (err == nil) != (want > 0) || err == nil && got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	if _, err := throttledAt(fstest.MapFS{}); err == nil {
		t.Error("no error without a file")
	}
}

// What fits in the packaged unit, whose limit is 85% of 256 MiB, and what does not.
func TestMemoryNeededIsThatOfTheMeasurements(t *testing.T) {
	t.Parallel()
	const unit, mib = 217, 1 << 20
	for _, tt := range []struct {
		feeds     int
		embedded  bool
		least, at int64
	}{{30, true, 100, unit}, {300, true, 100, unit}, {2000, true, 515, 700}, {2000, false, 100, unit}, {10_000, false, 271, 400}} {
		cfg := &config.Config{Memory: 64 * mib, Feeds: map[string]config.Feed{}, Buses: map[string]config.Bus{"b": {}}}
		if tt.embedded {
			cfg.Buses["b"] = config.Bus{Embedded: &config.Embedded{}}
		}
		for i := range tt.feeds {
			cfg.Feeds[fmt.Sprint(i)] = config.Feed{To: config.To{Bus: "b"}}
		}
		if got := memoryNeeded(cfg) / mib; got < tt.least || got > tt.at {
			t.Errorf("%d feeds, embedded %t: %d MiB, want %d to %d", tt.feeds, tt.embedded, got, tt.least, tt.at)
		}
	}
}
