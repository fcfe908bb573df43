package daemon

import (
	"math"
	"testing"
)

func TestConnectionLimits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		open          uint64
		served, admin int
	}{
		{0, 4096, 256},
		{512, 352, 32},
		{1024, 704, 64},
		{20_000, 4096, 256},
		{64, 8, 8},
		{math.MaxUint64, 4096, 256},
	} {
		served, admin := connectionLimits(tt.open)
		if served != tt.served || admin != tt.admin {
			t.Errorf("%d open files: got %d and %d, want %d and %d", tt.open, served, admin, tt.served, tt.admin)
		}
	}
}
