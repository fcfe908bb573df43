package connlimit

import (
	"net"
	"syscall"
)

// limitUnsent limits how many bytes the kernel buffers for a client that does not
// read, by default megabytes. It does not limit the bytes in flight, so no client
// gets slower. A connection that does not support it is left as it is.
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
	_ = raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, notSentLowAt, 2*Chunk) })
}
