//go:build !linux

package connlimit

import "net"

func limitUnsent(net.Conn) {}
