package serve

import (
	"net"
	"syscall"
)

// limitUnsent bounds what the system holds for a client that does not take it, which
// would be megabytes. It does not bound what is on its way, so nobody gets slower.
func limitUnsent(conn net.Conn) {
	const notSentLowAt = 0x19 // TCP_NOTSENT_LOWAT
	c, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	// Without it, it works as well.
	_ = raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, notSentLowAt, 2*piece) })
}
