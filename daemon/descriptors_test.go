package daemon

import (
	"math"
	"testing"
)

func TestConnectionLimits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		open                  uint64
		wanted, served, admin int
	}{
		{0, 4096, 4096, 256},
		{512, 4096, 352, 32},
		{1024, 4096, 704, 64},
		{1024, 100, 100, 64},
		{20_000, 4096, 4096, 256},
		{64, 4096, 8, 8},
		{math.MaxUint64, 4096, 4096, 256},
	} {
		served, admin := connectionLimits(tt.open, tt.wanted)
		if served != tt.served || admin != tt.admin {
			t.Errorf("%d open files, %d wanted: got %d and %d, want %d and %d", tt.open, tt.wanted, served, admin, tt.served, tt.admin)
		}
	}
}
