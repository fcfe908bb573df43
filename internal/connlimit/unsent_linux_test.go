package connlimit

import (
	"net"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// Bytes that a client does not read wait in the memory of the process, where they are
// counted, and not in the kernel, which would buffer megabytes for each client.
func TestUnsentIsBounded(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	d := NewListener(l, 1, time.Second)
	t.Cleanup(func() { _ = d.Close() })
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	must.Succeed(t, err)
	defer client.Close()
	conn, err := d.Accept()
	must.Succeed(t, err)
	defer conn.Close()
	must.Succeed(t, conn.SetWriteDeadline(time.Now().Add(300*time.Millisecond)))
	n, err := conn.Write(make([]byte, 16<<20))
	if err == nil || n > 1<<20 {
		t.Errorf("the system took %d bytes that nobody reads, %v", n, err)
	}
}
