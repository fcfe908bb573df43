//go:build !linux

package serve

import "net"

func limitUnsent(net.Conn) {}
