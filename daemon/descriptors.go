package daemon

import "github.com/feedbridge/feedbridge/serve"

// connectionLimits divides the file descriptors of the process among the connections of
// clients of served feeds, those of the admin server, and all else: buses, upstreams, and
// files. open is how many descriptors there are, 0 for no limit.
func connectionLimits(open uint64) (served, admin int) {
	const mostAdmin = 256
	if open == 0 {
		return serve.DefaultConnections, mostAdmin
	}
	rest := int(min(open, 1<<20))
	admin = max(8, min(mostAdmin, rest/16))
	served = rest - admin - max(64, rest/4)
	return max(8, min(serve.DefaultConnections, served)), admin
}
