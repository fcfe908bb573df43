package daemon

import (
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
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
		if got, err := lesser(tt.container, tt.machine)(); got != tt.want || (err == nil) != (tt.want > 0) {
			t.Errorf("%s: got %d, %v, want %d", name, got, err, tt.want)
		}
	}
}
