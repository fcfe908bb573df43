package daemon

import "github.com/KimMachineGun/automemlimit/memlimit"

// memoryShare is Go's soft memory limit as a share of the memory that the process may
// have. The rest is for memory that Go does not count: the program itself,
// buffers of the system, and the part of the kernel's page cache that counts for the container.
const memoryShare = 0.85

// LimitMemory sets Go's soft memory limit to a share of the memory of the container or the
// machine, unless GOMEMLIMIT is set in the environment. It does nothing if neither is known.
// Near the limit Go collects garbage earlier; no allocation fails.
func LimitMemory() {
	_, _ = memlimit.Set(memlimit.WithRatio(memoryShare), memlimit.WithProvider(lesser(memlimit.FromCgroup, memlimit.FromSystem)))
}

// lesser returns the limit of the container, or the memory of the machine if that is less or there is
// no container: a container may be allowed more memory than the machine has.
func lesser(container, machine memlimit.Provider) memlimit.Provider {
	return func() (uint64, error) {
		limit, err := container()
		if err != nil {
			return machine()
		}
		if total, err := machine(); err == nil {
			limit = min(limit, total)
		}
		return limit, nil
	}
}
