package kafka_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// inBubble runs a test in a synctest bubble. There no timeout passes while a goroutine has work to do,
// so the outcome does not depend on how fast the machine is. Clusters and clients that are
// created there speak the same protocol over the virtual network.
//
// Records are not compressed with zstd there: kgo closes a zstd decoder, which has a channel of the
// bubble, when it is garbage, and the runtime ends the process for that.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// bubbled returns a test that runs another one in a bubble.
func bubbled(test func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) { inBubble(t, test) }
}

// isInBubble reports whether the caller is in a bubble. The clock of a bubble begins in 2000.
func isInBubble() bool { return time.Now().Year() < 2020 }

// virtualNetwork has the clusters of all bubbles. The time of a bubble would stand still while a
// goroutine waits for a socket of the system.
var virtualNetwork kfake.VirtualNetwork

var lastVirtualPort atomic.Int64

// dialVirtual connects to a cluster of a bubble. Like a machine, it refuses a connection to a port
// on which nobody listens.
func dialVirtual(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := virtualNetwork.DialContext(ctx, network, addr)
	if err != nil && ctx.Err() == nil {
		err = &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	if err != nil {
		return nil, err
	}
	return virtualConn{conn}, nil
}

// virtualConn fails like a connection of a machine. A pipe has errors of its own.
type virtualConn struct{ net.Conn }

func (c virtualConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = net.ErrClosed
	}
	return n, err
}

func (c virtualConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}
	}
	return n, err
}

// virtualListener has an address as a machine shows it.
type virtualListener struct {
	net.Listener
	port int
}

func (l virtualListener) Addr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: l.port}
}

// listen listens in the network of the caller, at an address like 127.0.0.1:9092.
func listen(network, address string) (net.Listener, error) {
	if !isInBubble() {
		return net.Listen(network, address)
	}
	host, number, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(number)
	if err != nil {
		return nil, err
	}
	if port == 0 {
		port = int(lastVirtualPort.Add(1))
	}
	l, err := virtualNetwork.Listen(network, net.JoinHostPort(host, strconv.Itoa(port)))
	return virtualListener{l, port}, err
}
