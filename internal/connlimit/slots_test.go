package connlimit

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// A deadline that the server sets, as TLS does for its close message, holds.
func TestConnKeepsTheDeadlineOfTheServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		g := &conn{Conn: server, slot: &Slot{of: NewSlots(1, time.Second)}}
		defer func() { _ = g.Close() }()
		must.Succeed(t, g.SetDeadline(time.Now().Add(time.Second)))
		begun := time.Now()
		if _, err := g.Write([]byte("x")); err == nil || time.Since(begun) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(begun))
		}
	})
}

// A client that was fast gets no credit for it: it is evicted when it stops reading.
func TestFastClientsGetNoCredit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lost := false
		all := NewSlots(1, time.Second)
		first, err := all.Acquire(t.Context(), func() { lost = true })
		must.Succeed(t, err)
		for range 100 {
			first.Wait()
			first.Took(Chunk)
		}
		first.Wait()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := all.Acquire(ctx, func() {}); err != nil || !lost {
			t.Errorf("got %v; was the first one evicted? %t", err, lost)
		}
	})
}
