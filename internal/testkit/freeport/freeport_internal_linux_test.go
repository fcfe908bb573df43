package freeport

import (
	"errors"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// Each process that is forked meanwhile has copies of the descriptors of this one for a moment.
func TestReservedPortRefusesConnectionsUntilAServerListens(t *testing.T) {
	t.Parallel()
	var forks sync.WaitGroup
	defer forks.Wait()
	ended := make(chan struct{})
	defer close(ended)
	forks.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
				if err := exec.CommandContext(t.Context(), "true").Run(); err != nil && t.Context().Err() == nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for range 300 {
		address := reserveForTest(t)
		if _, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("connect before a server listens: %v", err)
		}
		server, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		client, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		client.Close()
		server.Close()
	}
}

// The system gives a reserved port to nobody while its server is stopped.
func TestReservedPortIsGivenToNobodyElse(t *testing.T) {
	t.Parallel()
	reserved := map[string]bool{}
	for range 200 {
		address := reserveForTest(t)
		if reserved[address] {
			t.Fatalf("%s is reserved twice", address)
		}
		reserved[address] = true
	}
	for range 1000 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		client, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		for user, address := range map[string]net.Addr{"a listener": listener.Addr(), "a client": client.LocalAddr()} {
			if reserved[address.String()] {
				t.Errorf("%s has the reserved address %s", user, address)
			}
		}
		client.Close()
		listener.Close()
	}
}

// reserveForTest reserves an address until the test ends.
func reserveForTest(t *testing.T) string {
	t.Helper()
	socket, port, err := reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(socket) })
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
