//go:build !linux

package connlimit

import "net"

// limitUnsent does nothing, because only Linux has the limit.
func limitUnsent(net.Conn) {}
